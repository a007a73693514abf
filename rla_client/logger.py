"""The RLA logger: `from rla_client import logger`, then record and dump.

    logger.record_tabular("perf/return", 12.5)
    logger.record_tabular("loss/policy", loss, exclude="stdout")
    row = logger.dump_tabular()

Recorded values become one row; a row whose `dump_tabular()` has returned reaches CSV, JSON, text
and TensorBoard through the agent, exactly once, whatever happens to this process afterwards.
Names and behaviour are those of polixir/RLAssistant's logger (and so openai/baselines'). Every
call is safe from any thread, and none raises because of the agent, the disk or the network.

`read_csv`, `read_json` and `read_tb` give what was logged back as pandas DataFrames. The files may be
growing, may have been cut anywhere by a kill, or may come from the original RLA (unquoted text, rows of
nothing but commas, rows longer than the header). A record that is not whole yet, the last one, is left out;
whole ones are never dropped in silence. pandas and the TensorBoard protos are imported at the first call;
tensorflow is not needed. An event file is a sequence of records, numbers little endian, checksums CRC-32C
masked as `rotate right 15 and add 0xa282ead8`::

    8  length n   4  masked checksum of the length   n  serialised Event   4  masked checksum of the Event
"""

from __future__ import annotations

import io
import os
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.csv_lines import rows_text, split_rows
from rla_client.run.begin import end_given_up, given_up
from rla_client.run.recording import (
    BACKUP,
    DEBUG,
    DISABLED,
    ERROR,
    INFO,
    WARN,
    Exclude,
    Logger,
    Row,
    check_prefix,
)
from rla_client.run.run import Run, backup, copies, ending, get_current, info, warn
from rla_client.run.run import set_current as set_current  # noqa: PLC0414 - also public here
from rla_client.run.start import check_sinks, default_folder, open_plain_run
from rla_client.run.trackers import ProfileKV, log_time_tracker, open_time_tracker, profile
from rla_client.stream import scope
from rla_client.stream.clock import TimeStep, clock, time_step_holder
from rla_client.stream.summary_scalars import summary_scalars
from rla_client.stream.values import MAX_INT_BITS

if TYPE_CHECKING:
    import pandas as pd
    import tensorboardX

    from rla_client.run.recording import Comm

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

EVENT_FILE_MARK = "tfevents"  # TensorBoard itself knows event files by this part of their name
MAIN_EVENTS_FOLDER = "events"  # tags of other folders below `tb` get the folder's name as prefix
EXACT_PANDAS = (3, 1)  # from here on floats are read exactly without asking, and asking warns
RECORD_HEAD = struct.Struct("<QI")
RECORD_TAIL = struct.Struct("<I")
MAX_RECORD_BYTES = 256 << 20  # protobuf itself takes 2 GiB; a picture has some MB
CRC_MASK_DELTA = 0xA282EAD8

_plain_run: scope.Part[Run | None] = scope.Part(lambda: None)  # opened by `configure`, closed by `reset`


def _take_current(logger: Logger | None) -> None:
    global _current  # noqa: PLW0603 - the current logger, as in RLA
    _current = logger


copies.append(_take_current)
_current: Logger | None = (
    get_current()
)  # a copy: each value of a row asks for it; None: each thread has its own


# -- values ------------------------------------------------------------------------------------


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


# -- text --------------------------------------------------------------------------------------


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


# -- where -------------------------------------------------------------------------------------


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
    place = scope.room()
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
    place, former = scope.room(), get_current()
    former_run = _plain_run.of(place)
    _plain_run.put(None, place)
    state, reason = "finished", ""
    try:
        configure(dir, format_strs, comm, file_names=file_names)
        place = scope.current()
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
    here = scope.current()
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

    Args:
        timeout: seconds; None waits for ever.

    Returns:
        False when that did not happen in time or no agent runs; and once when something was lost since the
        last call (the spool was full, say) or could not be kept (a figure that nobody can draw).
    """
    end_given_up()
    return get_current().flush(timeout, media=True)


def flush_rows(timeout: float | None = 10.0) -> bool:
    """As `flush`, without waiting for figures, images and videos, which take the agent longer.

    Args:
        timeout: seconds to wait at most; None: as long as it takes.

    Returns:
        Whether all rows and texts that were sent before are on disk.
    """
    end_given_up()
    return get_current().flush(timeout, media=False)


# -- clock -------------------------------------------------------------------------------------


def timestep() -> int | float:
    """The current time-step."""
    return time_step_holder.get_time()


get_time = timestep


def set_time(t: TimeStep) -> None:
    """Set the current time-step."""
    time_step_holder.set_time(t)


# -- TensorBoard -------------------------------------------------------------------------------


def get_tbx_writer() -> tensorboardX.SummaryWriter:
    """A tensorboardX `SummaryWriter` whose events travel through the agent.

    Its scalars are rows of progress.csv too, so `rla show` and `rla plot` know them: those of one
    `global_step`, given one after the other, make a row, which is written when the step changes, at
    `flush`, and at the latest after a second.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs (LOG_USED, format_strs).
    """
    from rla_client.run.tensorboard import tbx_writer  # tensorboardX is slow to import

    return tbx_writer(get_current())


def log_from_tf_summary(summary: object) -> None:
    """Send a TensorFlow Summary to TensorBoard; its scalars become rows too.

    Args:
        summary: a `Summary` of TensorFlow or tensorboardX, or its bytes.

    Raises:
        ArgumentError: not a Summary.
    """
    from rla_client.run.tensorboard import send_tf_summary

    send_tf_summary(get_current(), summary)


# -- reading back: CSV and JSON -----------------------------------------------------------------


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a `progress.csv`, or the one in the folder `path`; one row per dump, in order.

    Empty cells and `nan` are NaN; other text stays as it is. A last line without its end, rows of
    commas alone and `#` lines before the header are left out; cells beyond the header's too.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with extra("read", "read_csv"):
        import pandas as pd

    data = _whole_records(_content(_file(path, "progress.csv")))
    while data.startswith(b"#"):  # stable-baselines' monitor files
        data = data.partition(b"\n")[2]
    if not data.strip():
        empty: pd.DataFrame = pd.DataFrame()
        return empty
    try:
        frame = _parse_csv(data)
    except pd.errors.ParserError:  # the original's text with commas in it
        frame = _parse_csv(_cut_to_header(data))
    filled: pd.DataFrame = frame.dropna(how="all").reset_index(drop=True)
    return filled


def _parse_csv(data: bytes) -> pd.DataFrame:
    import pandas as pd

    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact: Any = {"float_precision": "round_trip"} if version < EXACT_PANDAS else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.ParserWarning)  # cells beyond the header
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(data),
            index_col=False,
            keep_default_na=False,
            na_values=["", "nan"],
            **exact,
            encoding_errors="replace",
            low_memory=False,
        )
    return frame


def _file(path: str | os.PathLike[str], name: str) -> Path:
    """The path itself, or where it is a folder, the file of this name in it."""
    return Path(path, name) if os.path.isdir(path) else Path(path)


def _content(path: Path) -> bytes:
    with open_plain(path, links=True) as file:
        return file.read(written_bytes(file))


def _whole_records(data: bytes) -> bytes:
    """Cut to the last line end that is not inside quotes; NULs begin what a power cut left."""
    data = data.partition(b"\0")[0]
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return data[:end]


def _cut_to_header(data: bytes) -> bytes:
    """Rewrite with each row cut to the header's number of cells."""
    header, *rows = split_rows(data.decode(errors="replace"))
    return rows_text([header, *(row[: len(header)] for row in rows)]).encode()


def read_json(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a `progress.json` (one object a line), or the one in the folder `path`.

    Raises:
        FileNotFoundError: there is no such file.
        ArgumentError: a whole line is not a JSON object.
    """
    with extra("read", "read_json"):
        import pandas as pd

    file = _file(path, "progress.json")
    data = _content(file)
    rows = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ArgumentError(f"{file}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ArgumentError(f"{file}, line {number}: not an object")
        rows.append(row)
    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


# -- reading back: TensorBoard ------------------------------------------------------------------


def read_tb(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read all scalars of an event file, or of the event files in a folder.

    Args:
        path: an event file; or a folder with some, else all below it: then tags from folders
            other than `events` carry the folder's name in front (`eval/return` of `tb/eval`).

    Returns:
        Index `step`, sorted; columns the tags, sorted; NaN where a tag has no value at a step.
        Of several values of one tag at one step the last one written counts.

    Raises:
        FileNotFoundError: no such file, or no event file below the folder.
    """
    with extra("read", "read_tb"):
        import pandas as pd

    columns: dict[str, dict[int, float]] = {}
    for prefix, file in _event_files(Path(path)):
        for step, tag, value in _scalars(file):
            columns.setdefault(prefix + tag, {})[step] = value
    ordered = {tag: pd.Series(columns[tag], dtype="float64") for tag in sorted(columns)}
    frame: pd.DataFrame = pd.DataFrame(ordered).sort_index()
    frame.index = frame.index.astype("int64")
    frame.index.name = "step"
    return frame


def read_events(file: str | os.PathLike[str], *, check: bool = True) -> Iterator[bytes]:
    """Yield the serialised Events of one file, up to the first record that is not whole.

    With `check=False` a record counts as whole whatever its checksums say, as some writers write none.
    """
    from crc32c import crc32c

    def masked(data: bytes) -> int:
        crc: int = crc32c(data)
        return ((crc >> 15 | crc << 17) + CRC_MASK_DELTA) & 0xFFFFFFFF

    with open_plain(file, links=True) as source:
        size = min(written_bytes(source), MAX_RECORD_BYTES)
        while len(head := source.read(RECORD_HEAD.size)) == RECORD_HEAD.size:
            length, crc = RECORD_HEAD.unpack(head)
            if length > size or (check and masked(head[:8]) != crc):
                return
            data = source.read(length)
            tail = source.read(RECORD_TAIL.size)
            if len(tail) < RECORD_TAIL.size or (check and RECORD_TAIL.unpack(tail)[0] != masked(data)):
                return
            yield data


def _event_files(path: Path) -> list[tuple[str, Path]]:
    """Prefix for the tags, and event file; in the order in which TensorBoard reads them."""
    if path.is_file():
        return [("", path)]
    found = sorted(path.glob(f"*{EVENT_FILE_MARK}*"))
    if found:
        return [("", file) for file in found]
    found = sorted(path.rglob(f"*{EVENT_FILE_MARK}*"))
    if not found:
        raise FileNotFoundError(f"no TensorBoard event file in {path}")
    if len({file.parent for file in found}) == 1:
        return [("", file) for file in found]
    return [(_prefix(file.parent.relative_to(path)), file) for file in found]


def _prefix(folder: Path) -> str:
    parts = folder.parts[1:] if folder.parts[:1] == ("tb",) else folder.parts
    return "" if parts in {(), (MAIN_EVENTS_FOLDER,)} else "/".join(parts) + "/"


def _scalars(file: Path) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of each scalar of one file, up to what is not an Event."""
    with extra("read", "read_tb"):
        from google.protobuf.message import DecodeError
        from tensorboardX.proto.event_pb2 import Event

    plugins: dict[str, str] = {}
    for data in read_events(file):
        try:
            event = Event.FromString(data)
        except DecodeError:
            return
        for tag, number in summary_scalars(event.summary, plugins):
            yield event.step, tag, number


def __dir__() -> list[str]:
    return sorted(__all__)
