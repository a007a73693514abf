"""The journal of a sweep, which one driver at a time writes.

    sweep.yaml       the file, as it was when the sweep was last started
    journal.jsonl    one event a line, only ever appended; the first says where it began
    driver.lock      flocked by the driver for as long as it lives
    request          what `rla sweep stop` asks of the driver: `stop` or `leave`
    runs/0001.txt    what run 1 printed, all its attempts
    runs/0001.exit   the exit status of its last attempt, written by what outlives it; absent while it runs
    runs/0001.lock   flocked by the processes of its last attempt, with the number of their group
    runs/0001.job    flocked by the job of Slurm whose turn it is, and by its program
    runs/0001.items  the database items that it opened, a line each (RLA_RUN_FILE)
    slurm/           what was submitted: 0001.plan names the runs of the first array, the rest is submitit's

It lies in `<data root>/local/sweeps/<name>/`. What is planned is on the disk before any of it starts: a run
that is started again must have the parameters it had. A line that was torn by a power cut is passed over;
what it said is seen again from the run's files.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import fsync_folder, write_atomic
from rla_client.contract.filesystem.modes import PRIVATE_FILE
from rla_client.contract.filesystem.plain_files import READ_FLAGS, open_plain, read_small
from rla_client.contract.process.locks import holder_pid, try_lock
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.number_parsing import parse_uint
from rla_client.contract.text.spelling import hint
from rla_client.sweep.engines.base import MAX_STATUS_BYTES, exit_status, is_held
from rla_client.sweep.run_state import RUNNING, SweepRun

if TYPE_CHECKING:
    from rla_client.sweep.space import Parameters


FOLDER = ("local", "sweeps")  # below the data root, where no item lies and nothing is sent to a master
JOURNAL, FILE, LOCK, REQUEST = "journal.jsonl", "sweep.yaml", "driver.lock", "request"
PUBLIC_FOLDER = 0o755  # others may look, as far as the umask lets them
WRITABLE_BY_OTHERS = 0o022
MAX_JOURNAL_BYTES = 1 << 30
MAX_ITEMS_BYTES = 1 << 20
CLOCKS_S = 60.0  # by which the clocks of two machines may differ
LOCK_S = 0.5  # who asks whether a sweep has a driver holds its lock for a moment
FORMAT = 1


class Journal:
    """The events of one sweep and the states that follow from them.

    Attributes:
        folder: of the sweep.
        runs: by number.
        ident: tells this sweep from others that had its name.
        begun_in: working folder of its runs.
        data_root: their database.
        is_new: `hold` began it.
    """

    def __init__(self, data_root: Path, name: str) -> None:
        self.data_root = data_root
        self.name = name
        self.folder = data_root.joinpath(*FOLDER, name)
        self._runs = f"{self.folder}/runs"
        self.runs: dict[int, SweepRun] = {}
        self.ident = ""
        self.begun_in = ""
        self.is_new = False
        self._file: int | None = None
        self._lock: int | None = None

    def exists(self) -> bool:
        """Whether such a sweep was ever started."""
        return (self.folder / JOURNAL).is_file()

    def read(self) -> Journal:
        """All events so far.

        Raises:
            SweepError: there is no such sweep, or it is of a later release.
        """
        self.runs, self.ident = {}, ""
        try:
            with open_plain(self.folder / JOURNAL) as file:
                data = file.read(MAX_JOURNAL_BYTES)
        except OSError:
            known = hint(self.name, names(self.data_root))
            raise SweepError(
                f"{self.data_root} has no sweep {self.name!r}" + (f"\nhint: {known}" if known else "")
            ) from None
        for line in data.split(b"\n"):
            self._take(line)
        if not self.ident:
            raise SweepError(f"{self.folder / JOURNAL} is not a journal of a sweep")
        return self

    def _take(self, line: bytes) -> None:
        try:
            event = parse_json(line)
        except ValueError:
            return  # torn, or the empty end
        if not isinstance(event, dict):
            return
        if event.get("event") == "sweep":
            if event.get("format") != FORMAT:
                raise SweepError(f"the sweep {self.name!r} was made by another release of rla")
            self.ident, self.begun_in = str(event.get("ident", "")), str(event.get("folder", ""))
            return
        try:
            if event.get("event") == "planned":
                run = SweepRun.planned(event)
                self.runs[run.number] = run
            elif (found := self.runs.get(parse_uint(event.get("run")))) is not None:
                found.handle_event(event)
        except (TypeError, ValueError, OverflowError):
            return  # follows on a torn line, or is damaged

    def hold(self) -> Journal:
        """Become the driver of the sweep, which may be new.

        Raises:
            SweepError: another process is.
        """
        path = self.folder / LOCK
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, self.folder / "runs"):
            with suppress(FileExistsError):
                folder.mkdir(mode=PUBLIC_FOLDER)
        self.check_own()
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(self._lock, timeout_s=LOCK_S):
            told = read_small(path, MAX_STATUS_BYTES * 8).decode(errors="replace")
            self.release()
            raise SweepError(
                f"the sweep {self.name!r} is being run already by {told or 'another process'}\n"
                f"hint: `rla sweep status {self.name}` shows it, `rla sweep stop {self.name}` ends it"
            )
        if not _leads_to(path, self._lock):
            self.release()  # who held it before has discarded the sweep that it began
            return self.hold()
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            self._open()
            (self.folder / REQUEST).unlink(missing_ok=True)
        except BaseException:
            self.release()
            raise
        return self

    def check_own(self) -> None:
        """Be sure that nobody else says what is run: commands stand in these files.

        Raises:
            SweepError: somebody else owns them, or may write them.
        """
        for path in (self.folder, self.folder / "runs", self.folder / JOURNAL, self.folder / FILE):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if found.st_uid != os.geteuid():
                raise SweepError(f"{path} is of another user (uid {found.st_uid}), and says what is run")
            if found.st_mode & WRITABLE_BY_OTHERS:
                raise SweepError(
                    f"{path} can be written by others, and says what is run\nhint: chmod go-w {path}"
                )

    def _open(self) -> None:
        path = self.folder / JOURNAL
        self.is_new = not self.exists()
        if self.is_new:
            first = {"event": "sweep", "format": FORMAT, "ident": secrets.token_hex(3), "folder": os.getcwd()}
            write_atomic(path, _lines([first]), mode=PRIVATE_FILE)  # so that no journal begins torn
            fsync_folder(self.folder.parent)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.read()
        size = os.fstat(self._file).st_size
        if os.pread(self._file, 1, size - 1) != b"\n":
            self._write(b"\n")  # behind a torn line, so that the next is whole

    def release(self) -> None:
        """Be its driver no longer."""
        for descriptor in (self._file, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    def discard(self) -> None:
        """Have what `hold` began be gone, while it is held; a sweep that was there, or has runs, stays."""
        if self.is_new and not self.runs:
            gone = self.folder.with_name(f".{self.name}-{secrets.token_hex(8)}")  # at once: somebody may wait
            self.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def plan(self, wanted: Iterable[tuple[int, Parameters]], *, anew: bool = False) -> list[SweepRun]:
        """Have all these runs planned, on the disk before this returns.

        Those that are planned already stay what they are; a choice that is wanted twice is run twice.

        Args:
            wanted: (trial, parameters with the seed) of each.
            anew: none of them is planned yet, though another may be like it.

        Returns:
            The runs in that order, known ones too.
        """
        known: dict[str, list[SweepRun]] = {}
        for run in () if anew else reversed(self.runs.values()):
            known.setdefault(key_of(run.parameters), []).append(run)
        found, events = [], []
        number = max(self.runs, default=0)
        for trial, parameters in wanted:
            same = known.get(key_of(parameters))
            if same:
                found.append(same.pop())
                continue
            number += 1
            run = SweepRun(number, trial, parameters)
            self.runs[run.number] = run
            events.append({"event": "planned", "run": run.number, "trial": trial, "parameters": parameters})
            found.append(run)
        if events:
            self._write(_lines(events))
            assert self._file is not None
            os.fsync(self._file)
        return found

    def tell(self, run: SweepRun, event: str, **content: object) -> None:
        """Note what became of a run.

        Raises:
            ValueError: that cannot become of it now.
        """
        told = {"event": event, "run": run.number, **content, "time": time.time()}
        run.handle_event(told)
        self._write(_lines([told]))

    def _write(self, data: bytes) -> None:
        assert self._file is not None, "not its driver"
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise SweepError(
                f"{self.folder / JOURNAL} cannot be written: {error.strerror}\n"
                f"hint: live runs continue; `rla sweep resume {self.name}` supervises them again"
            ) from error

    def request(self, what: str) -> None:
        """Ask the driver for something."""
        write_atomic(self.folder / REQUEST, what.encode())

    def requested(self) -> str:
        """What was asked of the driver; empty: nothing."""
        try:
            return read_small(self.folder / REQUEST, MAX_STATUS_BYTES).decode(errors="replace")
        except (OSError, RlaError):
            return ""

    def driver(self) -> int | None:
        """The process that drives it; 0 where that cannot be told; None: none does."""
        try:
            descriptor = os.open(self.folder / LOCK, READ_FLAGS)
        except OSError:
            return None
        try:
            return None if try_lock(descriptor, shared=True) else holder_pid(descriptor) or 0
        finally:
            os.close(descriptor)

    def run_id(self, run: SweepRun) -> str:
        """The run_id by which it continues where it was killed."""
        return f"{self.name}-{self.ident}-{run.number}"

    def path(self, run: SweepRun, kind: str) -> Path:
        """One of its files: txt, exit, lock or items."""
        return Path(self.name_of(run, kind))

    def name_of(self, run: SweepRun, kind: str) -> str:
        """The same as text, which a sweep of many short runs has more time for."""
        return f"{self._runs}/{run.number:04d}.{kind}"

    def exit_status(self, run: SweepRun) -> int | None:
        """Of its last attempt; None where it left none."""
        return exit_status(self.path(run, "exit"))

    def exit_time(self, run: SweepRun) -> float | None:
        """When its last attempt left its exit status, Unix seconds; None where it left none."""
        try:
            return self.path(run, "exit").stat().st_mtime
        except OSError:
            return None

    def has_ended(self, run: SweepRun) -> bool:
        """Whether a run that is noted down as running has ended since, as far as its files tell."""
        if self.exit_status(run) is not None:
            return True
        return run.engine == "local" and not is_held(self.name_of(run, "lock"))

    def is_queued(self, run: SweepRun) -> bool:
        """Whether a run that is noted down as running waits in the queue of Slurm.

        Which job it has is not noted where that was submitted late, or by a driver that was killed: then
        the file of a job counts that was written since the run was to start.
        """
        if run.state != RUNNING or run.engine != "slurm":
            return False
        path = self.path(run, "job")
        try:
            told = read_small(path, MAX_STATUS_BYTES * 8).decode(errors="replace")
            written = path.stat().st_mtime
        except (OSError, RlaError):
            return True
        if run.handle:
            return not told.startswith(f"job {run.handle} ")
        return not told or written < run.started - CLOCKS_S

    def items(self, run: SweepRun) -> list[Mapping[str, Any]]:
        """The database items that it opened: data_root, table and index of each, oldest first."""
        return items_of(self.path(run, "items"))


def items_of(path: Path) -> list[Mapping[str, Any]]:
    """What `Journal.items` tells of the file of a run."""
    try:
        lines = read_small(path, MAX_ITEMS_BYTES).split(b"\n")
    except (OSError, RlaError):
        return []
    found: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            told = parse_json(line)
        except ValueError:
            continue
        if isinstance(told, dict) and all(
            isinstance(told.get(k), str) for k in ("data_root", "table", "index")
        ):
            found.append(told)
    return found


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether a path still is that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def names(data_root: Path) -> list[str]:
    """The sweeps of a database, the newest first."""
    try:
        with os.scandir(data_root.joinpath(*FOLDER)) as entries:
            found = [
                (os.stat(f"{one.path}/{JOURNAL}").st_mtime, one.name)
                for one in entries
                if not one.name.startswith(".") and os.path.isfile(f"{one.path}/{JOURNAL}")
            ]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(found, reverse=True)]


def _lines(events: Iterable[Mapping[str, Any]]) -> bytes:
    now = time.time()
    told = (json.dumps({"time": now, **event}, separators=(",", ":"), default=str) for event in events)
    return "".join(f"{line}\n" for line in told).encode()


def key_of(parameters: Mapping[str, Any]) -> str:
    """A text that is the same for the same choice, in whatever order."""
    return json.dumps(parameters, sort_keys=True, default=str)


class SweepError(RlaError):
    """A sweep cannot be started, opened or continued; the message says why and what to do."""
