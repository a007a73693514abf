"""Description of a run in its opening frame.

It is all that the agent knows of a run: its writer, the data root with its device and inode, the folders
below it, the outputs. Worker processes describe streams of their own, whose outputs have a label.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rla_client.contract import __version__
from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import ArgumentError, RemoteProtocolError
from rla_client.contract.layout import ALWAYS_OUTPUTS, OUTPUT_NAMES, PRINTED, TAKEN_NAMES
from rla_client.contract.process.account import user_name
from rla_client.contract.safe_names import FILE_NAMES, check_relative
from rla_client.contract.spool.opening import LAUNCH_VARIABLE, Continuation, Opening, labelled
from rla_client.run.rank_variables import rank
from rla_client.run.run_mode import mode
from rla_client.run.writer_label import label_of_rank, with_machine

TOKEN_MARK: Final = "#rla1."  # noqa: S105 - no password
MAX_TOLD_BYTES: Final = 1 << 20  # of an address, unpacked


def make_opening(
    *,
    root: str | os.PathLike[str],
    folders: Mapping[str, str],
    sinks: Iterable[str],
    names: Mapping[str, str],
    item: Mapping[str, Any],
    config_path: Path | None = None,
) -> Opening:
    """Describe a run.

    Args:
        root: data root, or the plain folder.
        folders: kind → path below `root`; `log` is required.
        sinks: outputs.
        names: output → file name in the log folder, where it is not the usual one.
        item: `table`, `index` and further attributes of an `Opening`; empty for a plain folder.
        config_path: the rla_config.yaml that the run was opened with.

    Raises:
        ArgumentError: a file name cannot be used, two outputs have the same, or a path is not UTF-8.
    """
    sinks = set(sinks) - PRINTED
    _check_names(sinks, names)
    real = check_path(root)
    if config_path is not None:
        check_path(config_path)
    found = os.stat(real)
    told: dict[str, Any] = {
        name: readable(value) if isinstance(value, str) else value for name, value in item.items()
    }
    opening = Opening(
        run=os.urandom(16).hex(),
        epoch=max(time.time_ns(), 0),
        opened=max(time.time(), 0.0),  # a clock before 1970 is wrong; the run is recorded all the same
        root=real,
        root_device=found.st_dev,
        root_inode=found.st_ino,
        folders=dict(folders),
        sinks=frozenset(sinks),
        names={**OUTPUT_NAMES, **names},
        offline=mode() == "offline",
        config=None if config_path is None else os.path.abspath(config_path),
        launch=readable(os.environ.get(LAUNCH_VARIABLE, "")[:64]),
        **_writer_fields(primary=True, label=""),
    )
    return opening._replace(**told)


def address_of(opening: Opening, places: Places) -> str:
    """The address of a run that a process of this machine opened.

    Its spool is for processes of this machine; the description behind it is for those of others.
    """
    import base64  # noqa: PLC0415 - not at import of the package
    import zlib  # noqa: PLC0415

    told = {"opening": opening.to_fields(), "machine": machine_name(places)}
    packed = base64.urlsafe_b64encode(zlib.compress(json.dumps(told).encode(), 9)).decode()
    return f"{opening.run}@{os.path.realpath(places.spool)}{TOKEN_MARK}{packed}"


def told_by(address: str) -> tuple[Opening, str] | None:
    """The run's description and machine in an address; None where it has neither.

    Raises:
        ArgumentError: it is incomplete, or no address.
    """
    import base64  # noqa: PLC0415 - not at import of the package
    import zlib  # noqa: PLC0415

    _, mark, packed = address.rpartition(TOKEN_MARK)
    if not mark:
        return None
    try:
        content = zlib.decompressobj().decompress(base64.urlsafe_b64decode(packed), MAX_TOLD_BYTES)
        told = json.loads(content)
        return Opening.from_fields(told["opening"]), str(told["machine"])
    except (ValueError, LookupError, TypeError, zlib.error, RemoteProtocolError) as error:
        raise ArgumentError(
            f"{address!r:.80}… is no address of a run: take all of what rla_client.run_address() gives"
        ) from error


def check_path(path: str | os.PathLike[str]) -> str:
    """The real path of a data root, log folder or configuration, in a form that the agent can use.

    Raises:
        ArgumentError: it is not UTF-8, or relative to a working folder that is gone.
    """
    try:
        real = os.path.realpath(path)
    except FileNotFoundError as error:
        raise ArgumentError(
            f"the path {readable(os.fspath(path))} starts from the working folder, which is gone"
        ) from error
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"the path {os.fspath(path)!a} cannot be used: {FILE_NAMES}; start it with PYTHONUTF8=1"
        ) from error
    if real == readable(real):
        return real
    try:
        text = os.fsencode(real).decode()
    except UnicodeDecodeError:
        message = f"the path {readable(real)} is not UTF-8: choose another folder, or rename it"
    else:
        message = f"the path {text!a} cannot be used: {FILE_NAMES}; start it with PYTHONUTF8=1"
    raise ArgumentError(message)


def readable(text: str) -> str:
    """The text, with bytes that are not UTF-8 (of a path, the environment) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_names(sinks: Iterable[str], names: Mapping[str, str]) -> None:
    """Refuse names that the agent refuses, before the first row waits for it.

    Raises:
        ArgumentError: a file name cannot be used, or two outputs have the same.
    """
    for output, name in names.items():
        if len(check_relative(name, what="output file name")) != 1:
            raise ArgumentError(
                f"the {output} output cannot be called {name!r}: a file name without a folder is needed"
            )
    owners = dict.fromkeys(TAKEN_NAMES, "what rla-agent itself writes there")
    for output, usual in OUTPUT_NAMES.items():
        if output not in sinks and output not in ALWAYS_OUTPUTS:
            continue
        name = names.get(output, usual)
        other = owners.setdefault(name, f"the {output} output")
        if other != f"the {output} output":
            raise ArgumentError(
                f"{other} and the {output} output cannot both be {name!r}: give one of them another name"
            )


def _writer_fields(*, primary: bool, label: str) -> dict[str, Any]:
    return {
        "primary": primary,
        "label": label,
        "pid": os.getpid(),
        "host": readable(os.uname().nodename),
        "user": readable(user_name() or str(os.getuid())),
        "python": readable(sys.executable or ""),
        "client": __version__,
    }


def worker_opening(
    opening: Opening, *, after: tuple[str, ...] | None = None, role: str = "", ends_part: bool = False
) -> Opening | None:
    """Describe the stream of a worker process of the run: its outputs bear a label of its own.

    Args:
        opening: of the run's main process; of a part, that of its machine.
        after: of a rank that continues in its own files: its earlier streams in this spool.
        role: of a process that joined; the label is this, with a number appended where it is taken.
        ends_part: the end of this process is the end of its part.
    """
    folder = opening.log_folder
    position = rank()
    ends_part = ends_part and bool(opening.part)
    if after is not None and opening.continues is not None:
        goes_on = Continuation(
            abandoned=opening.continues.abandoned, after=after, earlier=opening.continues.earlier
        )  # rank 0 has cut the tables
        label = label_of_rank(opening, f"rank{position}", opening.part or machine_name(find_places()))
        if opening.part:
            goes_on = opening.continues._replace(after=after)
        fields = _writer_fields(primary=False, label=label)
        own = opening._replace(continues=goes_on, ends_part=ends_part, **fields)
        return own if os.path.isdir(folder) else None
    wanted = role or (f"rank{position}" if position else f"p{os.getpid()}")
    if opening.part and (role or not position):  # other machines may have the same name
        wanted = with_machine(wanted, opening.part)
    label = wanted
    for attempt in range(2, 1000):
        try:
            name = labelled(opening.names["warn"], label)
            os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            label = f"{wanted}-{attempt}"
        except OSError:
            return None  # the item is gone, so there is nothing to join
        else:
            break
    return opening._replace(**_writer_fields(primary=False, label=label), ends_part=ends_part)
