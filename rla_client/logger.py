"""The RLA logger: `from rla_client import logger`, then record, dump.

    logger.record_tabular("perf/return", 12.5)
    logger.record_tabular("loss/policy", loss, exclude="stdout")
    row = logger.dump_tabular()

Recorded values become one row; a row whose `dump_tabular()` has returned reaches CSV, JSON, text and
TensorBoard through the agent, exactly once, whatever happens to this process afterwards. Names and behaviour
are those of polixir/RLAssistant's logger (and so openai/baselines'). Every call is safe from any thread, and
none raises because of the agent, the disk or the network. `readers` gives what was logged back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rla_client.readers import read_csv, read_json, read_tb
from rla_client.run.close import end_given_up, given_up
from rla_client.run.current_logger import backup, copies, get_current, info, warn
from rla_client.run.current_logger import set_current as set_current  # noqa: PLC0414 - also public here
from rla_client.run.failure import ending
from rla_client.run.flushing import flush_current
from rla_client.run.plain_run import check_sinks, default_folder, open_plain_run
from rla_client.run.record.excluded_sinks import Exclude, Row, check_prefix
from rla_client.run.record.run_logger import BACKUP, DEBUG, DISABLED, ERROR, INFO, WARN, Logger
from rla_client.run.record.time_tracker import ProfileKV, log_time_tracker, open_time_tracker, profile
from rla_client.run.run import Run
from rla_client.stream import run_scope
from rla_client.stream.clock import TimeStep, clock, time_step_holder
from rla_client.stream.values import MAX_INT_BITS

if TYPE_CHECKING:
    import tensorboardX

    from rla_client.run.record.rank_mean import Comm


# fmt: off
__all__ = [
    "BACKUP", "DEBUG", "DISABLED", "ERROR", "INFO", "WARN", "Logger", "ProfileKV", "backup", "configure",
    "debug", "dump", "dump_tabular", "dumpkvs", "error", "flush", "flush_rows", "get_current", "get_dir",
    "get_tbx_writer", "get_time", "getkvs", "info", "log", "log_from_tf_summary", "log_key_value",
    "log_time_tracker", "logkv", "logkv_mean", "logkvs", "ma_record_tabular", "open_time_tracker", "profile",
    "read_csv", "read_json", "read_tb", "record", "record_mean", "record_tabular", "reset",
    "scoped_configure", "set_comm", "set_level", "set_time", "timestep", "warn",
]
# fmt: on

_plain_run: run_scope.PerScope[Run | None] = run_scope.PerScope(
    lambda: None
)  # opened by `configure`, closed by `reset`


def _take_current(logger: Logger | None) -> None:
    global _current  # noqa: PLW0603 - the current logger, as in RLA
    _current = logger


copies.append(_take_current)
_current: Logger | None = (
    get_current()
)  # a copy: each value of a row asks for it; None: each thread has its own


def record_tabular(key: str, val: object, exclude: Exclude = None, freq: float | None = None) -> None:
    """Set a value of the next row; recording a key twice keeps the last.

    Args:
        key: `group/name`; what is not text becomes its `str`.
        val: a number of any kind (Python, numpy, torch, …), text, or an array, which goes to
            CSV and JSON only. The value of this moment counts.
        exclude: name or names of outputs that do not get it: stdout, log, csv, json, tensorboard.
        freq: record only when at least so many time-steps went by since it was last recorded.

    Raises:
        ArgumentError: `exclude` names no output.
    """
    kind = type(val)
    if (
        exclude is None
        and freq is None
        and type(key) is str
        and (kind is float or kind is bool or (kind is int and val.bit_length() <= MAX_INT_BITS))  # type: ignore[attr-defined]
    ):
        current = _current or get_current()
        with current.lock:
            current.pending[key] = val
            if current.excluded:
                current.excluded.pop(key, None)
        return
    (_current or get_current()).record(key, val, exclude, freq)


logkv = record_tabular


def logkvs(d: Mapping[str, Any], prefix: str = "", exclude: Exclude = None) -> None:
    """Record each entry of a dict under `prefix + key`.

    Args:
        d: name to value, each as in `record_tabular`.
        prefix: stands before each name, such as `train/`.
        exclude: as in `record_tabular`.

    Raises:
        ArgumentError: `prefix` is not text, or `exclude` names no output.
    """
    check_prefix("second argument of logkvs", prefix)
    for key, value in d.items():
        record_tabular(f"{prefix}{key}", value, exclude)


def log_key_value(keys: Iterable[str], values: Iterable[Any], prefix_name: str = "") -> None:
    """Record `values` under `prefix_name + key` of `keys`, in pairs.

    Args:
        keys: names.
        values: one for each name; what is longer than the other is cut.
        prefix_name: stands before each name.

    Raises:
        ArgumentError: `prefix_name` is not text.
    """
    check_prefix("third argument of log_key_value", prefix_name)
    for key, value in zip(keys, values, strict=False):
        record_tabular(f"{prefix_name}{key}", value)


def logkv_mean(key: str, val: object, exclude: Exclude = None) -> None:
    """Like `record_tabular`, but values since the last dump are averaged.

    Args:
        key: name of the metric.
        val: a number; the row holds the mean of all that came since the last dump.
        exclude: as in `record_tabular`.
    """
    get_current().record_mean(key, val, exclude)


def ma_record_tabular(
    key: str,
    val: object,
    record_len: int,
    ignore_nan: bool = False,
    exclude: Exclude = None,
    freq: float | None = None,
) -> None:
    """Record the mean of the last `record_len` values, nothing before there are as many.

    Args:
        key: as in `record_tabular`.
        val: a number.
        record_len: how many values.
        ignore_nan: leave NaN out of the window (it never worked in RLA).
        exclude: as in `record_tabular`.
        freq: as in `record_tabular`.
    """
    get_current().record_moving(key, val, record_len, exclude, freq, ignore_nan=ignore_nan)


def getkvs() -> Row:
    """What has been recorded since the last dump."""
    current = get_current()
    with current.lock:
        return dict(current.pending)


def dump_tabular(step: TimeStep | None = None) -> Row:
    """Write the recorded values as one row and clear them.

    Args:
        step: set the clock to it first, as stable-baselines3 gives it.

    Returns:
        The row with `time-step` (the clock) and `timestamp` (Unix seconds) added; an empty dict
        when nothing was recorded, and then nothing is written.
    """
    if step is not None:
        time_step_holder.set_time(step)
    if given_up:
        end_given_up()
    return (_current or get_current()).dump()


dumpkvs = dump_tabular
record = record_tabular  # these three as stable-baselines3 calls them: model.set_logger(logger)
record_mean = logkv_mean
dump = dump_tabular


def log(*args: object, level: int = INFO) -> None:
    """Write `args`, joined by spaces, to stdout and log.txt if `level` is high enough.

    WARN and ERROR also go to warn.txt, BACKUP to backup.txt, whatever the level.
    """
    get_current().log(*args, level=level)


def debug(*args: object) -> None:
    """`log` at level DEBUG."""
    get_current().log(*args, level=DEBUG)


def error(*args: object) -> None:
    """`log` at level ERROR."""
    get_current().log(*args, level=ERROR)


def set_level(level: int) -> None:
    """Let only text of at least this level reach stdout and log.txt."""
    get_current().level = level


def configure(  # noqa: PLR0913, PLR0917 - baselines' signature and ours
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - baselines' name
    format_strs: Iterable[str] | None = None,
    comm: Comm | None = None,
    framework: str | None = None,
    log_callback_fn: Callable[[Row], object] | None = None,
    log_suffix: str = "",
    file_names: Mapping[str, str] | None = None,
) -> None:
    """Log into a plain folder, without `exp_manager`.

    Args:
        dir: the folder; default `$OPENAI_LOGDIR`, else a new folder for temporary files.
        format_strs: outputs (stdout, log, csv, json, tensorboard); default
            `$OPENAI_LOG_FORMAT`, else stdout, log, csv.
        comm: MPI communicator, see `set_comm`.
        framework: taken for RLA's sake; no output depends on it.
        log_callback_fn: called with each dumped row.
        log_suffix: put before the ending of progress.csv, progress.json and log.txt.
        file_names: other names for output files, e.g. `{"log": "debug.log"}`.

    Raises:
        ArgumentError: an unknown output, a folder that cannot be made, or two outputs in one file.
    """
    del framework
    place = run_scope.room()
    former = _plain_run.of(place)
    _plain_run.put(None, place)
    if former is not None and former.logger is get_current():
        former.close("finished", "")
    names, folder, sinks = dict(file_names or {}), default_folder(dir), check_sinks(format_strs)
    run = open_plain_run(folder, sinks, log_callback_fn, comm, log_suffix, names, clock=clock.of(place))
    _plain_run.put(run, place)
    set_current(run.logger, place)
    log(f"Logging to {run.logger.folder}")


@contextmanager
def scoped_configure(
    dir: str | os.PathLike[str] | None = None,  # noqa: A002
    format_strs: Iterable[str] | None = None,
    comm: Comm | None = None,
    file_names: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """`configure` for the length of a block; the former logger comes back also after an error.

    The arguments and errors are those of `configure`; what the block raises goes through.
    """
    place, former = run_scope.room(), get_current()
    former_run = _plain_run.of(place)
    _plain_run.put(None, place)
    state, reason = "finished", ""
    try:
        configure(dir, format_strs, comm, file_names=file_names)
        place = run_scope.current()
        yield
    except BaseException as error:
        state, reason = ending(error)
        raise
    finally:
        run = _plain_run.of(place)
        _plain_run.put(former_run, place)
        if run is not None:
            run.close(state, reason)
        set_current(former)


def reset() -> None:
    """Close the current plain logger and go back to the one that only prints."""
    here = run_scope.current()
    run = _plain_run.of(here)
    _plain_run.put(None, here)
    if run is not None:
        run.close("finished", "")
    set_current(None)


def get_dir() -> str | None:
    """The folder of the current logger's files, None when it only prints."""
    return get_current().folder


def set_comm(comm: Comm | None) -> None:
    """Average values over the ranks of an MPI communicator at each dump; rank 0 writes."""
    get_current().comm = comm


def flush(timeout: float | None = 10.0) -> bool:
    """Wait until everything sent before is in its files, durably: rows, texts, checkpoints, code, media.

    That is all of the current run; where none is open, of each run that this process opened.

    Args:
        timeout: seconds; None waits for ever.

    Returns:
        False when that did not happen in time or no agent runs; and once when something was lost since the
        last call (the spool was full, say) or could not be kept (a figure that nobody can draw).
    """
    end_given_up()
    return flush_current(timeout, media=True)


def flush_rows(timeout: float | None = 10.0) -> bool:
    """As `flush`, without waiting for figures, images and videos, which take the agent longer.

    Args:
        timeout: seconds to wait at most; None: as long as it takes.

    Returns:
        Whether all rows and texts that were sent before are on disk.
    """
    end_given_up()
    return flush_current(timeout, media=False)


def timestep() -> int | float:
    """The current time-step."""
    return time_step_holder.get_time()


get_time = timestep


def set_time(t: TimeStep) -> None:
    """Set the current time-step."""
    time_step_holder.set_time(t)


def get_tbx_writer() -> tensorboardX.SummaryWriter:
    """A tensorboardX `SummaryWriter` whose events travel through the agent.

    Its scalars are rows of progress.csv too, so `rla show` and `rla plot` know them: those of one
    `global_step`, given one after the other, make a row, which is written when the step changes, at
    `flush`, and at the latest after a second.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs (LOG_USED, format_strs).
    """
    from rla_client.run.record.summary_writer import tbx_writer  # tensorboardX is slow to import

    return tbx_writer(get_current())


def log_from_tf_summary(summary: object) -> None:
    """Send a TensorFlow Summary to TensorBoard; its scalars become rows too.

    Args:
        summary: a `Summary` of TensorFlow or tensorboardX, or its bytes.

    Raises:
        ArgumentError: not a Summary.
    """
    from rla_client.run.record.tf_summary import send_tf_summary

    send_tf_summary(get_current(), summary)


def __dir__() -> list[str]:
    return sorted(__all__)
