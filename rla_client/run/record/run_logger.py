"""Logger object of a run.

A `Logger` keeps the values of the next row in a dict. `dump` packs them into one ROW frame for its outbox
and prints the table when `stdout` is among its sinks; nothing else happens in the training process. All
state is guarded by the outbox's re-entrant lock, so that calls from any thread and from signal handlers are
safe and frames lie in the order of the calls. Behaviour follows polixir/RLAssistant's logger (itself
openai/baselines'), its faults fixed.
"""

from __future__ import annotations

import io
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import msgpack

from rla_client.contract.errors import ArgumentError, FrameTooLargeError
from rla_client.contract.layout import PRINTED, TIME_STEP, TIMESTAMP
from rla_client.contract.process.fork_hooks import at_fork, renew_lock
from rla_client.contract.spool.protocol import MAX_KEYS_PER_ROW, FrameKind, TextTarget, event_payload, pack
from rla_client.contract.text.printed_row import format_table
from rla_client.media.row_media import is_media, save_media
from rla_client.run.record.excluded_sinks import Exclude, Row, sink_names, without
from rla_client.run.record.rank_mean import Comm, mean_over_ranks
from rla_client.stream.clock import TimeStepHolder, time_step_holder
from rla_client.stream.outbox import Outbox
from rla_client.stream.values import MAX_INT_BITS, text_of, to_plain

if TYPE_CHECKING:
    from rla_client.code.run_secrets import Secrets
    from rla_client.media.logged_media.logged_value import LoggedValue
    from rla_client.samples.sample_chunks import SampleChunks
    from rla_client.samples.sample_limits import Limits


DEBUG, INFO, WARN, ERROR, DISABLED, BACKUP = 10, 20, 30, 40, 50, 60
PLAIN_TYPES = frozenset({float, int, bool})
WAIT_PREFIX = "wait_"  # prefix of ProfileKV's sums of seconds
NAMES_SHOWN = 5  # in a warning
FIRST_ROWS = 3  # rows that `brief` prints
COLUMNS = frozenset((TIME_STEP, TIMESTAMP))  # columns of each row
CLOCK_NEVER_SET = (
    "two rows have time-step 0, because nobody sets it: call time_step_holder.set_time(step) in the loop, "
    "or logger.dump_tabular(step=...)"
)
_ROW, _EVENT = int(FrameKind.ROW), int(FrameKind.EVENT)  # an enum member costs the hot path 0.1 us


class Logger:
    """Pending values, levels and sinks of one experiment.

    Args:
        folder: folder of its files, or a function that returns it; None when it only prints.
        sinks: of SINKS.
        outbox: the stream, None when it only prints.
        callback: called with each dumped row.
        comm: MPI communicator over whose ranks values are averaged at dump.
        join: called once at the first record of a worker process; gives its outbox.
        clock: of the run; default: that of the calling thread's current run.

    Attributes:
        silent: it writes nothing to stdout, since the program is not aware of it (`rla_client/capture`).
    """

    silent = False

    def __init__(  # noqa: PLR0913 - what a run has
        self,
        folder: str | Callable[[], str] | None,
        sinks: Iterable[str],
        outbox: Outbox | None = None,
        *,
        callback: Callable[[Row], object] | None = None,
        comm: Comm | None = None,
        join: Callable[[threading.RLock], Outbox | None] | None = None,
        clock: TimeStepHolder | None = None,
    ) -> None:
        self._folder = folder
        self.clock = clock or time_step_holder
        self.sinks = frozenset(sinks)
        #: Whether the next row is printed; for `brief` the number of first rows that are still to come.
        self._prints_rows = not PRINTED.isdisjoint(self.sinks)
        self._rows_to_print = None if "stdout" in self.sinks else FIRST_ROWS
        self.outbox = outbox
        self.level = INFO
        self.callback = callback
        self.comm = comm
        self._join = join
        self.lock = threading.RLock() if outbox is None else outbox.lock
        self._packer = msgpack.Packer(autoreset=True)
        self._text_keys: set[str] = set()
        self._averages: dict[str, deque[float]] = {}
        self._passed: dict[str, float] = {}
        self.secrets: Secrets | None = None  # hidden in text; None: nothing is
        self.lead: Callable[[], str] | None = None  # begins each text on stdout and in the text log
        self.tbx_writer: Any = None
        self.scalar_rows: Any = None  # `ScalarRows`, made with the first SummaryWriter
        self.show_media: Callable[[Logger, str, LoggedValue, int], object] | None = None  # in TensorBoard
        self.take_parameters: Callable[[Mapping[str, Any]], object] | None = None  # told during the run
        self.write_beside: Callable[..., object] | None = None  # makes a run of hyper-parameters and metrics
        self.sample_limits: Limits | None = None  # of the configuration; None: the defaults
        self.sample_chunks: SampleChunks | None = None  # made with the first samples
        self.event_media = 0  # files kept of TensorBoard's events
        self.last_row: Row = {}
        self.address = ""  # of the run, for processes that join it
        self.for_workers = (
            ""  # describes the run to the worker processes that are started while it is current
        )
        self.reminder = ""  # warned of once: no run is open, at the second row
        self._reminded = False  # warned of once: nobody sets the time-step
        self.forget_pending()
        at_fork(self)

    @property
    def folder(self) -> str | None:
        """Where its files lie, None when it only prints."""
        return self._folder() if callable(self._folder) else self._folder

    @folder.setter
    def folder(self, folder: str | None) -> None:
        self._folder = folder

    def after_fork_in_child(self) -> None:
        """Free the lock, and discard the parent's pending values."""
        renew_lock(self.lock)
        self.forget_pending()

    def forget_pending(self) -> None:
        """Discard the values recorded since the last dump."""
        self.pending: Row = {}
        self.excluded: dict[str, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, value: object, exclude: Exclude = None, freq: float | None = None) -> None:
        """Set a value of the next row. See `logger.record_tabular`."""
        if type(key) is not str:
            key = text_of(key)
        if type(value) not in PLAIN_TYPES or (type(value) is int and value.bit_length() > MAX_INT_BITS):
            if is_media(value):
                self.save_media(key, value)
                return
            try:
                given, value = value, to_plain(value)
            except FrameTooLargeError as error:
                raise FrameTooLargeError(f"{key}: {error}") from None
            if type(value) not in PLAIN_TYPES:
                self._warn_no_scalar(key, value, given)
        if exclude is not None or freq is not None:
            self._record_specially(key, value, exclude, freq)
            return
        with self.lock:
            self.pending[key] = value
            if self.excluded:
                self.excluded.pop(key, None)

    def save_media(self, key: str, value: object, step: float | None = None) -> None:
        """Save values that `is_media` accepts, at the time-step `step`, by default the clock's."""
        with self.lock:
            if self.outbox is None and self._join is not None:
                self._joined()
        show = self.show_media if "tensorboard" in self.sinks else None
        at = int(self.clock.get_time() if step is None else step)
        events = None if show is None else lambda name, media: show(self, name, media, at)
        save_media(key, value, step=step, folder=self.folder, show=events)

    def _record_specially(self, key: str, value: object, exclude: Exclude, freq: float | None) -> None:
        names = sink_names(exclude)
        with self.lock:
            if freq is not None:
                now = self.clock.get_time()
                if now - self._passed.get(key, -math.inf) < freq:
                    return
                self._passed[key] = now
            self.pending[key] = value
            if names:
                self.excluded[key] = names
            else:
                self.excluded.pop(key, None)

    def record_mean(self, key: str, value: object, exclude: Exclude = None) -> None:
        """Average `value` with the others recorded under `key` since the last dump."""
        key = text_of(key)
        plain = _averaged(f"logkv_mean({key!r}, …)", value)
        with self.lock:
            count = self._counts.get(key, 0)
            if plain is None:
                self._record_specially(key, None, exclude, None)
                return
            old = self.pending.get(key) if count else 0.0
            mean = (old or 0.0) * count / (count + 1) + plain / (count + 1)
            self._record_specially(key, mean, exclude, None)
            self._counts[key] = count + 1

    def record_moving(
        self, key: str, value: object, length: int, exclude: Exclude, freq: float | None, *, ignore_nan: bool
    ) -> None:
        """Record the mean of the last `length` values, once there are as many."""
        key = text_of(key)
        plain = _averaged(f"ma_record_tabular({key!r}, …)", value)
        if plain is None:
            raise ArgumentError(f"ma_record_tabular({key!r}, …) takes a number, got None")
        if length < 1:
            raise ArgumentError(f"record_len is a number of values, at least 1, got {length}")
        with self.lock:
            window = self._averages.get(key)
            if window is None or window.maxlen != length:
                window = self._averages[key] = deque(window or (), maxlen=length)
            if not (ignore_nan and math.isnan(plain)):
                window.append(plain)
            if len(window) == length:
                self.record(key, sum(window) / length, exclude, freq)

    def add(self, key: str, amount: float) -> None:
        """Add to the pending value of `key`, which counts as 0 where it is no number."""
        with self.lock:
            before = self.pending.get(key)
            self.record(key, (before if isinstance(before, int | float) else 0.0) + amount)

    def _warn_no_scalar(self, key: str, value: object, given: object) -> None:
        if value is None or isinstance(value, (int, float)) or "tensorboard" not in self.sinks:
            return
        if key not in self._text_keys:
            self._text_keys.add(key)
            shown = isinstance(value, str) and not isinstance(given, str)
            what = f"is of type {type(given).__name__}; its text" if shown else "is not a number; it"
            self._warn(f"{key} {what} is kept in CSV and JSON and left out of TensorBoard")

    def dump(self) -> Row:
        """Write the pending values as one row. See `logger.dump_tabular`."""
        with self.lock:
            row = self.pending
            if not row and self.comm is None:  # ranks without values still take part in the mean
                return {}
            self.pending = {}
            excluded = self.excluded
            if excluded or self._counts or self.comm is not None or TIME_STEP in row or TIMESTAMP in row:
                row = self._take_special(row)
                if not row:
                    return {}
            now = time.time()
            step = self.clock.get_time()
            outbox = self.outbox
            if outbox is None and self._join is not None:
                outbox = self._joined()
            if outbox is not None:
                payload = self._pack_row(step, now, row, excluded)
                outbox.put(_ROW, payload, now, 1)
            if (not step and not self._reminded) or self.reminder:
                self._remind(stored=outbox is not None)
            row[TIME_STEP] = step
            row[TIMESTAMP] = now
            self.last_row = row
            if self._prints_rows:
                shown = without(row, excluded, "stdout")
                beside_the_clock = shown.keys() - {TIME_STEP, TIMESTAMP}
                if beside_the_clock or not excluded:  # as in log.txt: `1.8e+09` would be useless
                    shown = {key: value for key, value in shown.items() if key != TIMESTAMP}
                    self._print_row(format_table(shown))
        if self.callback is not None:
            self.callback(dict(row))
        return row

    def write_row(self, values: Row, step: float, wall_time: float, exclude: tuple[str, ...]) -> None:
        """Write a row beside those of `dump`, without the clock or pending values.

        Args:
            values: name to plain data.
            step: its time-step.
            wall_time: its timestamp, Unix seconds.
            exclude: outputs that do not get it.
        """
        with self.lock:
            outbox = self.outbox or self._joined()
            if outbox is not None:
                excluded = dict.fromkeys(values, exclude) if exclude else {}
                if TIME_STEP in values or TIMESTAMP in values:
                    values = self._beside_columns(values, excluded)
                payload = self._pack_row(step, wall_time, values, excluded)
                outbox.put(_ROW, payload, time.time(), 1)

    def _beside_columns(self, row: Row, excluded: dict[str, tuple[str, ...]]) -> Row:
        """A row in which the user's values are renamed where they have the name of a standard column.

        Values that are excluded from some outputs are so under the new name.
        """
        names = {key: key for key in row}
        for key in sorted(COLUMNS & row.keys()):
            name = f"_{key}"
            while name in names.values():
                name = f"_{name}"
            names[key] = name
            if key not in self._text_keys:
                self._text_keys.add(key)
                sets = "; time_step_holder.set_time(step) sets that one" if key == TIME_STEP else ""
                self._tell(f"{key} is a column that each row has: your value is kept as {name}{sets}")
            if key in excluded:
                excluded[name] = excluded.pop(key)
        return {names[key]: value for key, value in row.items()}

    def _remind(self, *, stored: bool) -> None:
        """Warn once, from the second row on, of a missing call of the user's."""
        if not self.last_row:
            return
        reminder = ""
        if not stored:
            reminder, self.reminder = self.reminder, ""
        elif not self.clock.was_set:
            reminder, self._reminded = CLOCK_NEVER_SET, True
        if reminder:
            self._tell(reminder)

    def write_scalars(self) -> None:
        """Write pending scalars of `SummaryWriter`s."""
        if self.scalar_rows is not None:
            self.scalar_rows.write()

    def finish_rows(self) -> None:
        """Write the last scalars of `get_tbx_writer`, and warn of values that no `dump_tabular` wrote."""
        with self.lock:
            self.write_scalars()
            names = [name for name in self.pending if not name.startswith(WAIT_PREFIX)]
        if names:
            values = "1 value was" if len(names) == 1 else f"{len(names)} values were"
            since = "after the last row and not written" if self.last_row else "but never written"
            shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
            self._tell(f"{values} recorded {since}; call logger.dump_tabular() ({shown})")

    def flush(self, timeout: float | None, *, media: bool) -> bool:
        """Wait until all records are on disk, with `media` also figures and videos. See `logger.flush`."""
        self.write_scalars()
        return True if self.outbox is None else self.outbox.flush_kept(timeout, media=media)

    def stream_outbox(self) -> Outbox | None:
        """The stream for records other than rows; None, with one warning, where nothing is stored."""
        outbox = self.outbox
        if outbox is None and self._join is not None:
            outbox = self._joined()
        if outbox is None and self.reminder:
            reminder, self.reminder = self.reminder, ""
            self._tell(reminder)
        return outbox

    def _tell(self, message: str) -> None:
        """Warn on stderr, and in warn.txt where there is one."""
        import logging  # noqa: PLC0415 - not at import of the package

        logging.getLogger("rla_client").warning("%s", message)
        self._warn(message)

    def _warn(self, message: str, *, quiet: bool = True) -> None:
        self.log(f"[WARN] {self.clock.get_time()} : {message}", level=WARN, quiet=quiet)

    def _take_special(self, row: Row) -> Row:
        counts, excluded = self._counts, self.excluded
        self.excluded, self._counts = {}, {}
        if self.comm is not None:
            row = mean_over_ranks(self.comm, row, counts)
        return row if row.keys().isdisjoint(COLUMNS) else self._beside_columns(row, excluded)

    def _pack_row(self, step: float, now: float, row: Row, excluded: dict[str, tuple[str, ...]]) -> bytes:
        content = (step, now, row, excluded) if excluded else (step, now, row)
        if len(row) > MAX_KEYS_PER_ROW:
            raise ArgumentError(
                f"a row of {len(row)} keys is over the limit of {MAX_KEYS_PER_ROW}; it was dropped"
            )
        try:
            return self._packer.pack(content)  # type: ignore[no-any-return]
        except (OverflowError, ValueError, TypeError, UnicodeError):
            self._packer = msgpack.Packer(autoreset=True)
            clean = {str(to_plain(str(key))): to_plain(value) for key, value in row.items()}
            names = {str(to_plain(str(key))): value for key, value in excluded.items()}
            return pack([step, now, clean, names])

    def _joined(self) -> Outbox | None:
        join, self._join = self._join, None
        if join is not None:
            self.outbox = join(self.lock)
        return self.outbox

    def memory(self) -> dict[str, Any]:
        """Moving averages and `freq` memory, as plain data."""
        with self.lock:
            windows = {key: [window.maxlen, list(window)] for key, window in self._averages.items()}
            return {"averages": windows, "passed": dict(self._passed)}

    def restore_memory(self, memory: Mapping[str, Any]) -> None:
        """Restore the state of `memory`."""
        with self.lock:
            self._averages = {
                key: deque(values, maxlen=length) for key, (length, values) in memory["averages"].items()
            }
            self._passed = dict(memory["passed"])

    def log(
        self,
        *args: object,
        level: int = INFO,
        quiet: bool = False,
        echo: bool = True,
        lead: str | None = None,
    ) -> None:
        """Write a line of text. See `logger.log`.

        `quiet` keeps it out of stdout and log.txt, `echo=False` out of stdout only. `lead` replaces the
        prefix `self.lead` in these two.
        """
        if lead is None:
            lead = "" if self.lead is None else self.lead()
        bare = self.shown(" ".join(map(shown_text, args))) + "\n"
        text = self.shown(lead) + bare if lead else bare
        targets = 0
        shown = level >= self.level and not quiet
        if shown and "log" in self.sinks:
            targets |= TextTarget.LOG
        if INFO < level < BACKUP:
            targets |= TextTarget.WARN
        elif level == BACKUP:
            targets |= TextTarget.BACKUP
        with self.lock:
            outbox = self.outbox
            if outbox is None and self._join is not None and targets:
                outbox = self._joined()
            if outbox is not None and targets:
                led = targets & TextTarget.LOG if lead else 0
                for files, part in ((led, text), (targets & ~led, bare)):
                    if files:
                        payload = pack([files, part.encode("utf-8", "backslashreplace").decode()])
                        outbox.put(FrameKind.TEXT, payload, time.time())
            if shown and echo and self.prints:
                self.print_text(text)

    def shown(self, text: str) -> str:
        """A text with the run's secrets hidden."""
        return text if self.secrets is None else self.secrets.verbatim(text)

    def print_table(self, row: Mapping[str, object], level: int) -> None:
        """Print a table where text of this level is printed, with the run's secrets hidden."""
        if level >= self.level and self.prints:
            with self.lock:
                self.print_text(self.shown(format_table(row)))

    @property
    def prints(self) -> bool:
        """Whether text goes to stdout."""
        return not self.silent and not PRINTED.isdisjoint(self.sinks)

    def _print_row(self, table: str) -> None:
        """Print a row; with `brief` the last of the first rows is followed by a hint where the others are."""
        self.print_text(table)
        if self._rows_to_print is None:
            return
        self._rows_to_print -= 1
        if not self._rows_to_print:
            self._prints_rows = False
            where = "log.txt has them" if "log" in self.sinks else "the files of the run have them"
            self.print_text(f"rla: further rows are not printed, {where}; `stdout` in LOG_USED prints each\n")

    def print_text(self, text: str) -> None:
        """Write to stdout; a full disk, a closed pipe or a narrow encoding raises no error."""
        if self.silent:
            return
        try:
            _write_text(sys.stdout, text)
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "ascii"
            with suppress(OSError, ValueError):
                _write_text(sys.stdout, text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError, AttributeError):
            return  # a closed pipe, a closed file, no stdout at all: printing never ends training

    def event(self, event: bytes, wall_time: float, step: int) -> None:
        """Send one serialised TensorBoard Event."""
        del step  # it is inside the event
        with self.lock:
            outbox = self.outbox or self._joined()
            if outbox is not None and "tensorboard" in self.sinks:
                try:
                    outbox.put(_EVENT, event_payload(event), wall_time)
                except FrameTooLargeError as error:
                    self._warn(f"not sent to TensorBoard: {error}", quiet=False)


def _averaged(call: str, value: object) -> float | None:
    """A value of a mean as a number; None stays None.

    Raises:
        ArgumentError: it is no number, or too large for a float.
    """
    plain = to_plain(value)
    if plain is None:
        return None
    try:
        if isinstance(plain, int | float):
            float(plain)
            return plain
    except OverflowError:
        pass
    got = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    raise ArgumentError(f"{call} takes a number that a float can hold, got {got}")


def shown_text(value: object) -> str:
    """Text of a value in a line; never raises."""
    if isinstance(value, int):
        return text_of(value)
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - the user's __str__; logging never ends training
        return f"<{type(value).__name__}: str() failed: {error!r}>"


def _write_text(stream: TextIO, text: str) -> None:
    """Write to a text stream, behind the program's output, and leave nothing in its buffer.

    Python writes a buffer's rest when the process ends, and exits with 120 where that fails.
    """
    buffer = stream.buffer if type(stream) is io.TextIOWrapper else None
    if type(buffer) is not io.BufferedWriter or type(buffer.raw) is not io.FileIO:
        stream.write(text)
        stream.flush()
        return
    data = text.encode(stream.encoding, stream.errors or "strict")
    stream.flush()
    while data:
        data = data[os.write(buffer.fileno(), data) :]
