"""Brings back from the master what the agent is asked for, in processes of their own: the agent needs no SSH.

    python -m rla_agent.replicate.fetch_back  < {"state", "folder", "name", "config"}  > one line of JSON

*A pruned file.* The note beside it (`rla_client.contract.checkpoint.prune_notes`) says which master has it,
under which name, and its SHA-256. It is written under a temp name, hashed, given its old time and permissions
(no more than the master's file and its folder here have), and only then takes its name, if nothing else has
it by then; then the note goes. A fetch that was cut off continues where it stopped. Two of the same file wait
for each other. Nothing that the master says becomes a name, and no more than the noted size is read.

*A run* of another machine (`{"state", "resume"}`), for `configure(run_id=…, resume=…)` on a
machine that has no such run. The newest run of that id in the table decides: it is looked for from the
newest day back, so that the usual case is found after a few reads; after `MAX_LOOKED_AT` runs or `SEARCH_S`
the search says that it gave up, for "none" would begin anew what has been begun. Brought here are what the
database shows of the run (log, hyper-parameters, archive) and of its checkpoints the one that was saved
last, with the state that exact resume needs. All of it goes by `transfer.fetch`: unsafe names are refused,
nothing goes through links, a file takes its name when it is whole. Where the run's `SHA256SUMS` is there, the
checkpoint is checked against it.

The agent's main thread looks after the processes (`FetchQueue`). A client asks again and again; the first
question starts the process, each gets an answer at once: `working`, `done` or `failed`. An answer of the
last two is given once, then the question is forgotten.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import IO, Any, Final

from rla_agent.replicate import settings
from rla_agent.replicate.backend.target import RemoteStat, Session, TargetError, listing_or_empty, read_json
from rla_agent.replicate.room import NoRoomError, Room
from rla_agent.replicate.transfer import (
    NewerHereError,
    Tally,
    fetch,
    fetched_mode,
    fill,
    item_files,
    make_below,
)
from rla_agent.replicate.verify import damaged
from rla_agent.replicate.worker.source import (
    MAX_RUN_JSON_BYTES,
    SILENT_S,
    fingerprint_of,
    heard_s_ago,
)
from rla_client.config.schema import load_config
from rla_client.contract.checkpoint.checkpoint_age import SaveTime, oldest_first
from rla_client.contract.checkpoint.prune_notes import PrunedFile, drop_note, read_note
from rla_client.contract.checkpoint.stamp import stamp_in
from rla_client.contract.errors import FetchError, RlaError, StillWrittenError
from rla_client.contract.filesystem.atomic_write import claim_name, write_atomic
from rla_client.contract.filesystem.modes import give_mode
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS, discard, held_folder
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, FETCHED_MARK, HYPARAMETER, LOG
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import wait_for_lock
from rla_client.contract.run_index import DATE_LENGTH, RunIndex
from rla_client.contract.safe_names import check_relative, check_table_name

MAX_FETCHES: Final = 4  # at a time; more wait for their turn
MAX_KEPT: Final = 64  # results that nobody has asked for
MAX_QUESTION_BYTES: Final = 64 << 10
MAX_WORDS_BYTES: Final = 500  # of a process's last words
STOP_S: Final = 2.0
PARTIAL_PREFIX: Final = ".rla-tmp-fetch-"
_PARTIAL: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LOOKED_AT: Final = 20_000
MAX_STAMPS: Final = 200  # checkpoints of a run on the master that are looked into, two reads each
SEARCH_S: Final = 60.0
RESUME_FOLDER: Final = b".resume"
SHOWN_KINDS: Final = (LOG, HYPARAMETER)
FINISHED: Final = "finished"


def fetch_back(state: Path, folder: str, name: str, config: str | None) -> int:
    """Bring one pruned file back into a folder (absolute).

    `config`: an rla_config.yaml that may name the master, beside those of the known databases.

    Returns:
        Bytes fetched; 0 when it is here already.

    Raises:
        FetchError: no note, no way to the master, or the master's copy is not what was sent.
        TargetError: the master cannot be reached.
        OSError: it cannot be written.
    """
    if len(check_relative(name, what="the file's name")) != 1:
        raise FetchError(f"{name!r} is not a file name")
    note = read_note(folder, name)
    if note is None:
        if os.path.exists(os.path.join(folder, name)):
            return 0
        raise FetchError(f"{os.path.join(folder, name)} is neither here nor noted as being on the master")
    check_relative(note.path, what="the note's path")
    with closing(_target(state, folder, note, config).open()) as session:
        return fetch_noted(session, folder, note)


def _target(state: Path, folder: str, note: PrunedFile, config: str | None) -> settings.Target:
    """The master that a note names, opened as a config here says; else where its database goes now.

    The master may have got another address since; the file's SHA-256 tells whether it is the right one.
    """
    entries = settings.listed(state)
    faults, others = [*filter(None, [settings.registry_problem(state)])], []
    for source in dict.fromkeys([*([config] if config else []), *(entry.config for entry in entries)]):
        try:
            found = settings.target(load_config(source), settings.folder(state))
        except RlaError as error:
            faults.append(str(error))
            continue
        if found.name == note.target:
            return found
        if source == config or any(entry.config == source and _holds(entry, folder) for entry in entries):
            others.append(found)
    if others:
        return others[0]
    known = f" ({'; '.join(faults)})" if faults else ""
    raise FetchError(
        f"{note.path} is on {note.target}, and no rla_config.yaml known here names that master{known}; "
        "configure the project with one that does, or: rla pull"
    )


def _holds(entry: settings.Entry, folder: str) -> bool:
    return os.path.realpath(folder).startswith(os.path.realpath(entry.data_root) + os.sep)


def fetch_noted(session: Session, folder: str, note: PrunedFile) -> int:
    """Put the file of a note back into `folder`; see `fetch_back`."""
    path = os.fsencode(note.path)
    with (
        closing_fd(os.open(folder, FOLDER_FLAGS)) as place,
        _partial(place, note) as (partial, descriptor),
    ):
        if os.path.exists(os.path.join(folder, note.name)):
            os.unlink(partial, dir_fd=place)
            return 0  # somebody else has brought it meanwhile
        found = session.stat(path)
        if found is None or found.kind != "file":
            raise FetchError(f"{note.path} is no longer on the master {note.target}")
        if found.size != note.size:
            raise FetchError(f"{note.path} has {found.size} bytes on the master, not {note.size}")
        try:
            fill(session, descriptor, path, replace(found, size=note.size), lambda *_: None)
        except NoRoomError as error:
            os.unlink(partial, dir_fd=place)
            raise NoRoomError(f"{note.path}: {error}") from error
        came = fingerprint_of(lambda at, count: os.pread(descriptor, count, at), note.size)
        if came.sha256.hex() != note.sha256:
            os.unlink(partial, dir_fd=place)
            raise FetchError(f"{note.path} is on the master with other content than was sent (SHA-256)")
        os.utime(descriptor, ns=(note.mtime_ns, note.mtime_ns))
        told = [mode for mode in (note.mode, found.mode) if mode is not None]
        mode = reduce(and_, told) if told else None
        give_mode(descriptor, fetched_mode(place, note.name, mode))
        os.fsync(descriptor)
        if not claim_name(partial, note.name, dir_fd=place):
            os.unlink(partial, dir_fd=place)
            return 0  # somebody has written a file of that name meanwhile: newer, and the only copy of it
        os.fsync(place)
    drop_note(folder, note.name)
    return note.size


@contextmanager
def _partial(place: int, note: PrunedFile) -> Iterator[tuple[str, int]]:
    """Name and descriptor of the temp file, locked."""
    name = PARTIAL_PREFIX + hashlib.sha256(f"{note.name} {note.sha256}".encode()).hexdigest()[:24]
    while True:
        with closing_fd(os.open(name, _PARTIAL, 0o600, dir_fd=place)) as descriptor:
            wait_for_lock(descriptor)
            named = None
            with suppress(FileNotFoundError):
                named = os.stat(name, dir_fd=place, follow_symlinks=False).st_ino
            if named == os.fstat(descriptor).st_ino:
                yield name, descriptor
                return


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for: a run of `run_key` in `table`; it goes below `root`.

    `series`: of checkpoints. `known`: index of the run of that key that is here; only newer ones count.
    """

    config: str
    root: str
    table: str
    run_key: str
    series: str
    known: str


def fetch_unfinished(state: Path, plain: dict[str, Any]) -> dict[str, Any]:
    """Find a run and bring it here; `plain`: the fields of a `Question`.

    Returns:
        `index` of the run, `time_step` of its checkpoint, `run_id` and `host`; `{"index": None}` where
        there is none to continue: no such run, or no checkpoint of it there (`over`: one that finished).

    Raises:
        StillWrittenError: it is still being written.
        FetchError: the search was given up.
        TargetError: the master cannot be reached.
    """
    question = Question(**{name: str(plain.get(name, "")) for name in Question.__slots__})
    check_table_name(question.table)
    target = settings.target(load_config(question.config), settings.folder(state))
    with closing(target.open()) as session:
        return _fetch(session, question)


def _fetch(session: Session, question: Question) -> dict[str, Any]:
    found = _newest(session, question)
    if found is None:
        return {"index": None}
    index, run = found
    if index[:DATE_LENGTH] <= question.known[:DATE_LENGTH]:
        return {"index": None}
    _refuse_live(run, question)
    item = f"{question.table}/{index}"
    checkpoint = _newest_checkpoint(session, item, question.series)
    if checkpoint is None:
        return {"index": None, "over": index if run.get("state") == FINISHED else None}
    step, name, state = checkpoint
    folder = os.fsencode(f"{CHECKPOINT}/{item}/")
    shown = [*_shown(session, item)]
    needed = [(folder + name, state)]
    stem = os.fsencode(f"{question.series}_{step}.")
    for below, beside in listing_or_empty(session, folder + RESUME_FOLDER):
        if below.startswith(stem) and beside.kind == "file":
            needed.insert(0, (folder + RESUME_FOLDER + b"/" + below, beside))
    _check_room(Path(question.root), item, [*shown, *needed])
    _mark(session, question.root, item)
    for path, remote in shown:
        with suppress(NewerHereError):  # a note that somebody has written here
            fetch(session, question.root, path, remote)
    for path, remote in needed:
        fetch(session, question.root, path, remote)
    _check_sum(question.root, item, name)
    return {"index": index, "time_step": step, "run_id": run.get("run_id"), "host": run.get("host")}


def _check_room(root: Path, item: str, wanted: list[tuple[bytes, RemoteStat]]) -> None:
    """Raise NoRoomError where the disk here has no room for what of these is not here yet."""
    coming = 0
    for path, state in wanted:
        here = root / os.fsdecode(path)
        coming += max(0, state.size - (here.stat().st_size if here.is_file() else 0))
    there = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    with closing_fd(os.open(os.path.realpath(there), FOLDER_FLAGS)) as place:
        try:
            with Room().promised(place, coming):
                pass
        except NoRoomError as error:
            raise NoRoomError(f"the run {item} is not brought here from the master: {error}") from error


def _mark(session: Session, root: str, item: str) -> None:
    """Say, before run.json is here, that this copy is not to be gone on with in place."""
    os.close(make_below(session, root, (LOG, *item.split("/"))))
    with held_folder(root, f"{LOG}/{item}") as folder:
        if not os.path.lexists(folder / "run.json"):
            write_atomic(folder / FETCHED_MARK, b"{}")


def _refuse_live(run: dict[str, Any], question: Question) -> None:
    age = heard_s_ago(run, time.time())
    if age is not None:
        raise StillWrittenError(
            f"the run {question.run_key!r} is still being written on {run.get('host')}, last heard of "
            f"{age:.0f} s ago; end it there, or if that machine is gone: it counts as dead after "
            f"{SILENT_S:.0f} s of silence"
        )


def _newest(session: Session, question: Question) -> tuple[str, dict[str, Any]] | None:
    """Index and run.json of the newest run with this key."""
    until = time.monotonic() + SEARCH_S
    for count, index in enumerate(_indices(session, f"{LOG}/{question.table}")):
        if count >= MAX_LOOKED_AT or time.monotonic() > until:
            raise FetchError(
                f"the master's table {question.table!r} was searched for {question.run_key!r} back to "
                f"{index[:10]}, and not to its beginning; fetch the run yourself: rla pull"
            )
        path = os.fsencode(f"{LOG}/{question.table}/{index}/run.json")
        run = read_json(session, path, MAX_RUN_JSON_BYTES)
        if isinstance(run, dict) and run.get("run_key") == question.run_key:
            return index, run
    return None


def _indices(session: Session, base: str) -> Iterator[str]:
    """Indices below a table's folder, newest first."""

    def below(folder: str, digits: int) -> list[str]:
        listed = listing_or_empty(session, os.fsencode(folder))
        names = [os.fsdecode(name) for name, state in listed if state.kind == "folder"]
        return sorted((name for name in names if len(name) == digits and name.isdecimal()), reverse=True)

    for year in below(base, 4):
        for month in below(f"{base}/{year}", 2):
            for day in below(f"{base}/{year}/{month}", 2):
                found = session.listing(os.fsencode(f"{base}/{year}/{month}/{day}"))
                names = sorted((os.fsdecode(name) for name, _ in found), reverse=True)
                indices = (f"{year}/{month}/{day}/{name}" for name in names)
                yield from (index for index in indices if RunIndex.parse(index) is not None)


def _newest_checkpoint(session: Session, item: str, series: str) -> tuple[int, bytes, RemoteStat] | None:
    """Time-step, name and state of the whole checkpoint that was saved last.

    Of more than MAX_STAMPS files, those that the master had last are looked into.
    """
    pattern = re.compile(rf"{re.escape(series)}[_-](-?[0-9]{{1,19}})\.pt", re.DOTALL)
    folder = os.fsencode(f"{CHECKPOINT}/{item}")
    found = {
        os.fsdecode(name): (int(match[1]), name, state)
        for name, state in listing_or_empty(session, folder)
        if state.kind == "file" and (match := pattern.fullmatch(os.fsdecode(name))) is not None
    }
    if len(found) < 2:  # noqa: PLR2004 - one is the newest whatever its stamp says
        return next(iter(found.values()), None)
    last = sorted(found.items(), key=lambda one: (one[1][2].mtime_s, one[1][0]))[-MAX_STAMPS:]
    times = []
    for name, (step, remote_name, state) in last:
        stamp = stamp_in(RemoteFile(session, folder + b"/" + remote_name, state.size))
        order = None if stamp is None else stamp.order
        times.append(SaveTime(name, step, state.mtime_s * 10**9, order))
    return found[oldest_first(times)[-1].name]


class RemoteFile(io.RawIOBase):
    """A file on the master, open for reading."""

    def __init__(self, session: Session, path: bytes, size: int) -> None:
        super().__init__()
        self._session, self._path, self._size, self._at = session, path, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        """See `io.RawIOBase`."""
        count = min(len(buffer), self._size - self._at)
        data = self._session.read(self._path, self._at, count) if count > 0 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _shown(session: Session, item: str) -> Iterator[tuple[bytes, RemoteStat]]:
    """What the database shows of a run."""
    for kind in SHOWN_KINDS:
        yield from item_files(session, os.fsencode(f"{kind}/{item}"), Tally())
    for ending in (".json", ".pt"):
        path = os.fsencode(f"{ARCHIVE_TESTER}/{item}{ending}")
        state = session.stat(path)
        if state is not None and state.kind == "file":
            yield path, state


def _check_sum(root: str, item: str, name: bytes) -> None:
    """Compare the checkpoint with the run's sums, where the master had some.

    Raises:
        FetchError: they differ; the file is removed.
    """
    path = f"{CHECKPOINT}/{item}/{os.fsdecode(name)}"
    if damaged(root, item, [path]):
        discard(root, *os.path.split(path))
        raise FetchError(
            f"{os.fsdecode(name)} on the master is not what its SHA256SUMS says; see: rla verify"
        )


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; whatever goes wrong is text."""
    try:
        if "resume" in request:
            return fetch_unfinished(Path(request["state"]), request["resume"])
        folder, name = str(request["folder"]), str(request["name"])
        size = fetch_back(Path(request["state"]), folder, name, request.get("config"))
    except TargetError as error:
        hint = f"; {error.hint}" if error.hint else ""
        return {"error": f"the master does not give it: {error}{hint}"}
    except StillWrittenError as error:
        return {"error": str(error), "still_written": True}
    except (RlaError, OSError) as error:
        return {"error": str(error)}
    return {"bytes": size}


def main() -> int:
    """The process's entry."""
    found = answer(json.load(sys.stdin))
    json.dump(found, sys.stdout)
    return 1 if "error" in found else 0


@dataclass
class _Fetch:
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def close(self) -> None:
        self.output.close()
        self.errors.close()


class FetchQueue:
    """Runs fetches; belongs to the agent's main thread, and never waits."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._running: dict[str, _Fetch] = {}
        self._ended: dict[str, dict[str, Any]] = {}

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question (without `state`) as of now; starts the work when it is new.

        Returns:
            `{"fetch": "working" | "done" | "failed", …}` with the process's answer.
        """
        self.poll()
        try:
            key = json.dumps(question, sort_keys=True)
        except (TypeError, ValueError):
            return {"fetch": "failed", "error": "this is not a question"}
        if key in self._ended:
            found = self._ended.pop(key)
            return {"fetch": "failed" if "error" in found else "done", **found}
        if len(key) > MAX_QUESTION_BYTES:
            return {"fetch": "failed", "error": "the question is too long"}
        if key not in self._running and len(self._running) < MAX_FETCHES:
            try:
                self._running[key] = self._start(question)
            except OSError as error:
                return {"fetch": "failed", "error": f"the agent cannot start a process: {error.strerror}"}
        return {"fetch": "working"}

    def _start(self, question: dict[str, Any]) -> _Fetch:
        request = tempfile.TemporaryFile()  # noqa: SIM115 - the process's
        request.write(json.dumps({**question, "state": str(self._state)}).encode())
        request.seek(0)
        output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - till it has ended
        command = [sys.executable, "-m", "rla_agent.replicate.fetch_back"]
        process = subprocess.Popen(command, stdin=request, stdout=output, stderr=errors, cwd="/")
        request.close()
        return _Fetch(process, output, errors)

    def poll(self) -> None:
        """Take in what has ended, also where nobody asks any more."""
        for key, running in list(self._running.items()):
            if running.process.poll() is None:
                continue
            del self._running[key]
            running.output.seek(0)
            try:
                found = json.loads(running.output.read())
            except ValueError:
                why = _last_line(running.errors)
                found = {"error": f"the fetching process ended with {running.process.returncode}{why}"}
            running.close()
            self._ended[key] = found
        while len(self._ended) > MAX_KEPT:
            del self._ended[next(iter(self._ended))]

    def stop(self) -> None:
        """End what runs; it continues where it stopped when it is asked for again."""
        for running in self._running.values():
            running.process.terminate()
        for running in self._running.values():
            try:
                running.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
            running.close()
        self._running.clear()


def _last_line(errors: IO[bytes]) -> str:
    """`: ` and the end of what a process said before it failed; empty when it said nothing."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_WORDS_BYTES))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1]}" if said else ""


if __name__ == "__main__":
    sys.exit(main())
