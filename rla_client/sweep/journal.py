"""Journal of a sweep, written by one driver at a time.

    sweep.yaml       the file as of the last start
    journal.jsonl    one event a line, append-only; the first has the working folder
    driver.lock      locked (flock) by the driver while it lives
    request          request of `rla sweep stop`: `stop` or `leave`
    runs/0001.txt    output of all attempts of run 1
    runs/0001.exit   exit status of its last attempt, written by a longer-lived process; absent while it runs
    runs/0001.lock   locked by the processes of its last attempt; holds their process group
    runs/0001.job    locked by the Slurm job that runs it, and by its program
    runs/0001.items  database items that it opened, a line each (RLA_RUN_FILE)
    slurm/           submissions: 0001.plan names the runs of the first array, other files are submitit's

The journal lies in `<data root>/local/sweeps/<name>/`. Planned runs are durable before any of them starts,
because a restarted run must have the same parameters. A line torn by a power cut is skipped; its event is
found again from the run's files.
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
from rla_client.sweep.engines.attempt_files import MAX_STATUS_BYTES, exit_status, is_held
from rla_client.sweep.run_state import RUNNING, SweepRun

if TYPE_CHECKING:
    from rla_client.sweep.space import Parameters


FOLDER = ("local", "sweeps")  # below the data root, outside of items, never replicated
JOURNAL, FILE, LOCK, REQUEST = "journal.jsonl", "sweep.yaml", "driver.lock", "request"
PUBLIC_FOLDER = 0o755  # readable by others, within the umask
WRITABLE_BY_OTHERS = 0o022
MAX_JOURNAL_BYTES = 1 << 30
MAX_ITEMS_BYTES = 1 << 20
CLOCKS_S = 60.0  # largest difference between the clocks of two machines
LOCK_S = 0.5  # a process that checks for a driver holds the lock for a moment
FORMAT = 1


class Journal:
    """The events of one sweep and the states that follow from them.

    Attributes:
        folder: folder of the sweep.
        runs: runs by number.
        ident: identifier that differs from earlier sweeps of the same name.
        begun_in: working folder of its runs.
        data_root: database of its runs.
        is_new: whether `hold` created the sweep.
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
        """Whether the sweep has ever been started."""
        return (self.folder / JOURNAL).is_file()

    def read(self) -> Journal:
        """Read all events; returns itself.

        Raises:
            SweepError: there is no such sweep, or it was made by another release.
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
            return  # a torn line, or the empty end
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
            return  # depends on a torn line, or is damaged

    def hold(self) -> Journal:
        """Become the driver of the sweep, which may be new; returns itself.

        Raises:
            SweepError: another process is its driver, or other users can write its files.
        """
        path = self.folder / LOCK
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, self.folder / "runs"):
            with suppress(FileExistsError):
                folder.mkdir(mode=PUBLIC_FOLDER)
        self.check_own()
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(self._lock, timeout_s=LOCK_S):
            holder = read_small(path, MAX_STATUS_BYTES * 8).decode(errors="replace")
            self.release()
            raise SweepError(
                f"the sweep {self.name!r} is being run already by {holder or 'another process'}\n"
                f"hint: `rla sweep status {self.name}` shows it, `rla sweep stop {self.name}` ends it"
            )
        if not _leads_to(path, self._lock):
            self.release()  # the former holder has discarded its new sweep
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
        """Check that other users cannot change the files, which contain commands to run.

        Raises:
            SweepError: another user owns a file, or may write it.
        """
        for path in (self.folder, self.folder / "runs", self.folder / JOURNAL, self.folder / FILE):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if found.st_uid != os.geteuid():
                raise SweepError(
                    f"{path} determines what is run, but belongs to another user (uid {found.st_uid})"
                )
            if found.st_mode & WRITABLE_BY_OTHERS:
                raise SweepError(
                    f"{path} determines what is run, but can be written by others\nhint: chmod go-w {path}"
                )

    def _open(self) -> None:
        path = self.folder / JOURNAL
        self.is_new = not self.exists()
        if self.is_new:
            first = {"event": "sweep", "format": FORMAT, "ident": secrets.token_hex(3), "folder": os.getcwd()}
            write_atomic(path, _lines([first]), mode=PRIVATE_FILE)  # so that line 1 is never torn
            fsync_folder(self.folder.parent)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.read()
        size = os.fstat(self._file).st_size
        if os.pread(self._file, 1, size - 1) != b"\n":
            self._write(b"\n")  # ends a torn line, so that the next one is complete

    def release(self) -> None:
        """Stop being the driver."""
        for descriptor in (self._file, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    def discard(self) -> None:
        """Delete a sweep that `hold` created and that has no runs, while it is locked; keep other sweeps."""
        if self.is_new and not self.runs:
            gone = self.folder.with_name(f".{self.name}-{secrets.token_hex(8)}")
            self.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def plan(self, wanted: Iterable[tuple[int, Parameters]], *, anew: bool = False) -> list[SweepRun]:
        """Plan runs durably.

        Runs that are planned already are reused; equal parameters that are wanted twice are run twice.

        Args:
            wanted: (trial, parameters with the seed) of each run.
            anew: plan all of them as new runs, even if there are equal ones.

        Returns:
            The runs in that order, including known ones.
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
        """Apply an event to a run and append it to the journal.

        Raises:
            ValueError: the event is not allowed in the run's state.
        """
        entry = {"event": event, "run": run.number, **content, "time": time.time()}
        run.handle_event(entry)
        self._write(_lines([entry]))

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
        """Send the driver a request."""
        write_atomic(self.folder / REQUEST, what.encode())

    def requested(self) -> str:
        """The pending request to the driver; empty without one."""
        try:
            return read_small(self.folder / REQUEST, MAX_STATUS_BYTES).decode(errors="replace")
        except (OSError, RlaError):
            return ""

    def driver(self) -> int | None:
        """Process id of the driver; 0 if unknown; None without a driver."""
        try:
            descriptor = os.open(self.folder / LOCK, READ_FLAGS)
        except OSError:
            return None
        try:
            return None if try_lock(descriptor, shared=True) else holder_pid(descriptor) or 0
        finally:
            os.close(descriptor)

    def run_id(self, run: SweepRun) -> str:
        """The run's run_id for the client, by which it continues after a kill."""
        return f"{self.name}-{self.ident}-{run.number}"

    def path(self, run: SweepRun, kind: str) -> Path:
        """Path of one of a run's files: txt, exit, lock, job or items."""
        return Path(self.name_of(run, kind))

    def name_of(self, run: SweepRun, kind: str) -> str:
        """The path as text, which is faster for many short runs."""
        return f"{self._runs}/{run.number:04d}.{kind}"

    def exit_status(self, run: SweepRun) -> int | None:
        """Exit status of a run's last attempt; None without one."""
        return exit_status(self.path(run, "exit"))

    def exit_time(self, run: SweepRun) -> float | None:
        """Time of a run's last exit status, Unix seconds; None without one."""
        try:
            return self.path(run, "exit").stat().st_mtime
        except OSError:
            return None

    def has_ended(self, run: SweepRun) -> bool:
        """Whether a run noted as running has ended since, by its files."""
        if self.exit_status(run) is not None:
            return True
        return run.engine == "local" and not is_held(self.name_of(run, "lock"))

    def is_queued(self, run: SweepRun) -> bool:
        """Whether a run noted as running waits in the queue of Slurm.

        If the journal lacks its job (submitted late, or by a driver that was killed), the run has left the
        queue once its job file was written after its start.
        """
        if run.state != RUNNING or run.engine != "slurm":
            return False
        path = self.path(run, "job")
        try:
            job_text = read_small(path, MAX_STATUS_BYTES * 8).decode(errors="replace")
            written = path.stat().st_mtime
        except (OSError, RlaError):
            return True
        if run.handle:
            return not job_text.startswith(f"job {run.handle} ")
        return not job_text or written < run.started - CLOCKS_S

    def items(self, run: SweepRun) -> list[Mapping[str, Any]]:
        """Database items that a run opened: data_root, table and index of each, oldest first."""
        return items_of(self.path(run, "items"))


def items_of(path: Path) -> list[Mapping[str, Any]]:
    """`Journal.items` from a run's file."""
    try:
        lines = read_small(path, MAX_ITEMS_BYTES).split(b"\n")
    except (OSError, RlaError):
        return []
    found: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            item = parse_json(line)
        except ValueError:
            continue
        if isinstance(item, dict) and all(
            isinstance(item.get(k), str) for k in ("data_root", "table", "index")
        ):
            found.append(item)
    return found


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def names(data_root: Path) -> list[str]:
    """Names of the sweeps of a database, newest first."""
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
    texts = (json.dumps({"time": now, **event}, separators=(",", ":"), default=str) for event in events)
    return "".join(f"{line}\n" for line in texts).encode()


def key_of(parameters: Mapping[str, Any]) -> str:
    """A text that is equal for equal parameters, in any order."""
    return json.dumps(parameters, sort_keys=True, default=str)


class SweepError(RlaError):
    """A sweep cannot be started, opened or continued; the message says why and what to do."""
