"""Run in a plain folder without a database (`logger.configure`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import OUTPUT_NAMES, SINKS
from rla_client.run.open_stream import open_stream
from rla_client.run.opening_frame import check_path, make_opening
from rla_client.run.rank_variables import rank
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.record.rank_mean import Comm
from rla_client.run.record.run_logger import Logger
from rla_client.run.run import Run
from rla_client.run.temporary_item import TemporaryItem
from rla_client.run.writing_rank import writes_runs
from rla_client.stream.clock import TimeStepHolder


def open_plain_run(  # noqa: PLR0913 - as `logger.configure`
    folder: str,
    sinks: tuple[str, ...],
    callback: Callable[[Row], object] | None,
    comm: Comm | None,
    suffix: str,
    names: dict[str, str],
    *,
    clock: TimeStepHolder | None = None,
) -> Run:
    """Open a run that logs into a plain folder.

    Raises:
        ArgumentError: the folder cannot be made.
    """
    from rla_client.config.schema import AgentConfig  # noqa: PLC0415 - not at import of the package

    settings = AgentConfig()
    if not writes_runs():
        outputs = [name for name in sinks if name != "stdout" or rank() == 0]
        where = TemporaryItem("plain", "", "noip").log_dir
        return Run(Logger(where, outputs, callback=callback, comm=comm, clock=clock), None, settings)
    check_path(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"cannot make the log folder {folder}: {error.strerror or error}") from error
    if suffix:
        for output in (name for name in OUTPUT_NAMES if name in SINKS):
            stem, ending = os.path.splitext(OUTPUT_NAMES[output])
            names.setdefault(output, f"{stem}{suffix}{ending}")
    opening = make_opening(root=folder, folders={"log": "."}, sinks=sinks, names=names, item={})
    run = open_stream(opening, sinks, settings, callback=callback, comm=comm, clock=clock)
    run.logger.folder = folder
    return run


def default_folder(folder: str | os.PathLike[str] | None) -> str:
    """`folder`, else `$OPENAI_LOGDIR`, else a new folder among the temporary files."""
    if folder is not None:
        return os.fspath(folder)
    stamp = datetime.now().strftime("openai-%Y-%m-%d-%H-%M-%S-%f")  # noqa: DTZ005 - local, as baselines
    if os.environ.get("OPENAI_LOGDIR"):
        return os.environ["OPENAI_LOGDIR"]
    import tempfile  # noqa: PLC0415 - not at import of the package

    return os.path.join(tempfile.gettempdir(), stamp)


def check_sinks(format_strs: Iterable[str] | None) -> tuple[str, ...]:
    """The outputs asked for, else those of `$OPENAI_LOG_FORMAT`, else stdout, log, csv.

    Raises:
        ArgumentError: one that does not exist.
    """
    if format_strs is None:
        format_strs = os.environ.get("OPENAI_LOG_FORMAT", "stdout,log,csv").split(",")
    names = tuple(name for name in format_strs if name)
    for name in names:
        if name not in SINKS:
            raise ArgumentError(f"unknown output {name!r} in format_strs; choose from {', '.join(SINKS)}")
    return names
