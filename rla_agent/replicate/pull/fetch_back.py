"""Brings pruned files back: a process of its own, started by the agent, so that the agent needs no SSH.

    python -m rla_agent.replicate.pull.fetch_back  < {"state", "folder", "name", "config"}  > one line of JSON

The note beside the file (`rla_client.contract.checkpoints`) says which master has it, under which name, and
its SHA-256. It is written under a temp name, hashed, given its old time and permissions (no more than the
master's file and its folder here have), and only then takes its name, if
nothing else has it by then; then the note goes. A fetch that was cut off continues where it stopped. Two of
the same file wait for each other. Nothing that the master says becomes a name, and no more than the noted
size is read.

Fetches from the master that clients ask for: each a process of its own, looked after by the main thread.

A client asks again and again; the first question starts the process, each gets an answer at once:
`working`, `done` or `failed`. An answer of the last two is given once, then the question is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import IO, Any, Final

from rla_agent.replicate import registry, settings
from rla_agent.replicate.backend.target import RemoteStat, Session, TargetError
from rla_agent.replicate.pull.transfer import READ_BYTES, fetched_mode, fill
from rla_client.config.schema import load_config
from rla_client.contract.checkpoints import PrunedFile, drop_note, read_note
from rla_client.contract.descriptors import wait_for_lock
from rla_client.contract.errors import FetchError, RlaError, StillWrittenError
from rla_client.contract.files import FOLDER_FLAGS, claim_name, give_mode
from rla_client.contract.layout import check_relative

MAX_FETCHES: Final = 4  # at a time; more wait for their turn
MAX_KEPT: Final = 64  # results that nobody has asked for
MAX_QUESTION_BYTES: Final = 64 << 10
MAX_WORDS_BYTES: Final = 500  # of a process's last words
STOP_S: Final = 2.0
PARTIAL_PREFIX: Final = ".rla-tmp-fetch-"
_PARTIAL: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def fetch_back(state: Path, folder: str, name: str, config: str | None) -> int:
    """Bring one pruned file back.

    Args:
        state: the agent's state folder.
        folder: where the file was; absolute.
        name: of the file.
        config: an rla_config.yaml that may name the master, beside those of the known databases.

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
    session = _target(state, folder, note, config).open()
    try:
        return fetch_noted(session, folder, note)
    finally:
        session.close()


def _target(state: Path, folder: str, note: PrunedFile, config: str | None) -> settings.Target:
    """The master that a note names, opened as a config here says; else where its database goes now.

    The master may have got another address since; the file's SHA-256 tells whether it is the right one.
    """
    entries = registry.entries(state)
    faults, others = [], []
    for source in dict.fromkeys([*([config] if config else []), *(entry.config for entry in entries)]):
        try:
            found = settings.target(load_config(source), registry.folder(state))
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


def _holds(entry: registry.Entry, folder: str) -> bool:
    return os.path.realpath(folder).startswith(os.path.realpath(entry.data_root) + os.sep)


def fetch_noted(session: Session, folder: str, note: PrunedFile) -> int:
    """Put the file of a note back into `folder`; see `fetch_back`."""
    path = os.fsencode(note.path)
    place = os.open(folder, FOLDER_FLAGS)
    try:
        with _partial(place, note) as (partial, descriptor):
            if os.path.exists(os.path.join(folder, note.name)):
                os.unlink(partial, dir_fd=place)
                return 0  # somebody else has brought it meanwhile
            found = session.stat(path)
            if found is None or found.kind != "file":
                raise FetchError(f"{note.path} is no longer on the master {note.target}")
            if found.size != note.size:
                raise FetchError(f"{note.path} has {found.size} bytes on the master, not {note.size}")
            fill(session, descriptor, path, RemoteStat(note.size, found.mtime_s), lambda *_: None)
            if _hash(descriptor) != note.sha256:
                os.unlink(partial, dir_fd=place)
                raise FetchError(f"{note.path} is on the master with other content than was sent (SHA-256)")
            os.utime(descriptor, ns=(note.mtime_ns, note.mtime_ns))
            told = [mode for mode in (note.mode, found.mode) if mode is not None]
            mode = reduce(and_, told) if told else None
            give_mode(descriptor, fetched_mode(place, note.name, mode))
            os.fsync(descriptor)
            if not _give_name(place, partial, note.name):
                return 0  # somebody has written a file of that name meanwhile
            os.fsync(place)
    finally:
        os.close(place)
    drop_note(folder, note.name)
    return note.size


def _give_name(place: int, partial: str, name: str) -> bool:
    """Give the fetched file its name, unless something has it: that is newer, and the only copy of it."""
    if claim_name(partial, name, dir_fd=place):
        return True
    os.unlink(partial, dir_fd=place)
    return False


@contextmanager
def _partial(place: int, note: PrunedFile) -> Iterator[tuple[str, int]]:
    """Name and descriptor of the temp file, locked."""
    name = PARTIAL_PREFIX + hashlib.sha256(f"{note.name} {note.sha256}".encode()).hexdigest()[:24]
    while True:
        descriptor = os.open(name, _PARTIAL, 0o600, dir_fd=place)
        try:
            wait_for_lock(descriptor)
            try:
                same = (
                    os.stat(name, dir_fd=place, follow_symlinks=False).st_ino == os.fstat(descriptor).st_ino
                )
            except FileNotFoundError:
                same = False
            if same:
                yield name, descriptor
                return
        finally:
            os.close(descriptor)


def _hash(descriptor: int) -> str:
    sha, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, READ_BYTES, at):
        sha.update(data)
        at += len(data)
    return sha.hexdigest()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; whatever goes wrong is text."""
    try:
        if "resume" in request:
            from rla_agent.replicate.pull.fetch_run import fetch_unfinished  # noqa: PLC0415 - the rarer request

            return fetch_unfinished(Path(request["state"]), request["resume"])
        size = fetch_back(
            Path(request["state"]), str(request["folder"]), str(request["name"]), request.get("config")
        )
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
        """The answer to a question as of now; starts the work when it is new.

        Args:
            question: for `rla_agent.replicate.pull.fetch_back`, without `state`.

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
        command = [sys.executable, "-m", "rla_agent.replicate.pull.fetch_back"]
        process = subprocess.Popen(command, stdin=request, stdout=output, stderr=errors, cwd="/")
        request.close()
        return _Fetch(process, output, errors)

    @property
    def busy(self) -> bool:
        """Whether something is being fetched."""
        return bool(self._running)

    def poll(self) -> None:
        """Take in what has ended, also where nobody asks any more."""
        for key, fetch in list(self._running.items()):
            if fetch.process.poll() is None:
                continue
            del self._running[key]
            fetch.output.seek(0)
            try:
                found = json.loads(fetch.output.read())
            except ValueError:
                why = _last_line(fetch.errors)
                found = {"error": f"the fetching process ended with {fetch.process.returncode}{why}"}
            fetch.close()
            self._ended[key] = found
        while len(self._ended) > MAX_KEPT:
            del self._ended[next(iter(self._ended))]

    def stop(self) -> None:
        """End what runs; it continues where it stopped when it is asked for again."""
        for fetch in self._running.values():
            fetch.process.terminate()
        for fetch in self._running.values():
            try:
                fetch.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                fetch.process.kill()
                fetch.process.wait()
            fetch.close()
        self._running.clear()


def _last_line(errors: IO[bytes]) -> str:
    """`: ` and the end of what a process said before it failed; empty when it said nothing."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_WORDS_BYTES))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1]}" if said else ""


if __name__ == "__main__":
    sys.exit(main())
