"""Fetch of another machine's unfinished run in order to resume it.

It serves `configure(run_id=…, resume=…)` on a machine that has no such run. The newest run of that id in the
table decides: the search goes from the newest day back, so that the usual case needs few reads; after
`MAX_LOOKED_AT` runs or `SEARCH_S` it fails instead of answering "none", since the run would then begin anew.
It fetches the run's data for the database (log, hyper-parameters, archive) and the last saved checkpoint with
the state for exact resume, all by `fetch_file`: unsafe names are refused, and links are not followed. Where
the run has `SHA256SUMS`, the checkpoint is checked against it.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty, read_json
from rla_agent.replicate.checksums import damaged
from rla_agent.replicate.transfer import arriving_sharded
from rla_agent.replicate.transfer.fetch_file import NewerHereError, fetch
from rla_agent.replicate.transfer.fetched_modes import make_below
from rla_agent.replicate.transfer.local_room import NoRoomError, Room
from rla_agent.replicate.transfer.remote_items import item_files
from rla_agent.replicate.transfer.tally import Tally
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.run_json import MAX_RUN_JSON_BYTES, SILENT_S, heard_s_ago
from rla_client.config.schema import load_config
from rla_client.contract.checkpoint.checkpoint_age import SaveTime, oldest_first
from rla_client.contract.checkpoint.stamp import stamp_in
from rla_client.contract.errors import FetchError, NotBroughtError, RemoteProtocolError, StillWrittenError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS, discard, held_folder
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, FETCHED_MARK, HYPARAMETER, LOG
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_index import DATE_LENGTH, RunIndex
from rla_client.contract.safe_names import check_table_name
from rla_client.contract.sharded_checkpoint.files import FOLDER_ENDING
from rla_client.contract.sharded_checkpoint.records import MAX_WHOLE_BYTES, Whole

MAX_LOOKED_AT: Final = 20_000
MAX_STAMPS: Final = 200  # checkpoints of a run on the master whose stamps are read, two reads each
SEARCH_S: Final = 60.0
ENDING: Final = os.fsencode(FOLDER_ENDING)
RESUME_FOLDER: Final = b".resume"
SHOWN_KINDS: Final = (LOG, HYPARAMETER)
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class Question:
    """A request: a run of `run_key` in `table`, to be fetched below `root`.

    `series`: of checkpoints. `known`: index of the run of that key that is here; only newer ones count.
    """

    config: str
    root: str
    table: str
    run_key: str
    series: str
    known: str


def fetch_unfinished(state: Path, plain: dict[str, Any]) -> dict[str, Any]:
    """Search a run and fetch it; `plain`: the fields of a `Question`.

    Returns:
        `index` of the run, `time_step` of its checkpoint, `run_id` and `host`; `{"index": None}` where
        there is none to continue: no such run, or no checkpoint of it there (`over`: one that finished).

    Raises:
        StillWrittenError: it is still being written.
        NotBroughtError: the disk here has no room for it, or its checkpoint is damaged.
        FetchError: the search was given up.
        TargetError: the master cannot be reached.
    """
    question = Question(**{name: str(plain.get(name, "")) for name in Question.__slots__})
    check_table_name(question.table)
    target = target_config.target(load_config(question.config), registry.folder(state))
    with closing(target.open()) as session:
        return _fetch(session, question)


def _fetch(session: TargetSession, question: Question) -> dict[str, Any]:
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
    if state.kind == "folder":
        files = list(item_files(session, folder + name, Tally()))
        needed = sorted(files, key=lambda one: arriving_sharded.is_mark(one[0]))
    stem = os.fsencode(f"{question.series}_{step}.")
    for below, beside in listing_or_empty(session, folder + RESUME_FOLDER):
        if below.startswith(stem) and beside.kind == "file":
            needed.insert(0, (folder + RESUME_FOLDER + b"/" + below, beside))
    try:
        _check_room(Path(question.root), [*shown, *needed])
        _mark(session, question.root, item)
        for path, remote in shown:
            with suppress(NewerHereError):  # a note that was written on this machine
                fetch(session, question.root, path, remote)
        for path, remote in needed:
            fetch(session, question.root, path, remote)
    except NoRoomError as error:
        raise NotBroughtError(f"the run {item} is not brought here from the master: {error}") from error
    _check_sum(question.root, item, name)
    return {"index": index, "time_step": step, "run_id": run.get("run_id"), "host": run.get("host")}


def _check_room(root: Path, wanted: list[tuple[bytes, RemoteStat]]) -> None:
    """Raise NoRoomError where the disk here has no room for the missing files."""
    coming = 0
    for path, state in wanted:
        here = root / os.fsdecode(path)
        coming += max(0, state.size - (here.stat().st_size if here.is_file() else 0))
    there = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    with closing_fd(os.open(os.path.realpath(there), FOLDER_FLAGS)) as place, Room().promised(place, coming):
        pass


def _mark(session: TargetSession, root: str, item: str) -> None:
    """Mark the copy, before run.json is here, as one that must not be continued in place."""
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


def _newest(session: TargetSession, question: Question) -> tuple[str, dict[str, Any]] | None:
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


def _indices(session: TargetSession, base: str) -> Iterator[str]:
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


def _newest_checkpoint(
    session: TargetSession, item: str, series: str
) -> tuple[int, bytes, RemoteStat] | None:
    """Time-step, name and state of the whole checkpoint that was saved last.

    Of more than MAX_STAMPS files, only the last modified ones are read.
    """
    pattern = re.compile(rf"{re.escape(series)}[_-](-?[0-9]{{1,19}})\.(?:pt|dcp)", re.DOTALL)
    folder = os.fsencode(f"{CHECKPOINT}/{item}")
    found = {
        os.fsdecode(name): (int(match[1]), name, state)
        for name, state in listing_or_empty(session, folder)
        if (match := pattern.fullmatch(os.fsdecode(name))) is not None
        and state.kind == ("folder" if name.endswith(ENDING) else "file")
    }
    last = sorted(found.items(), key=lambda one: (one[1][2].mtime_s, one[1][0]))[-MAX_STAMPS:]
    times = []
    for name, (step, remote_name, state) in last:
        path = folder + b"/" + remote_name
        if state.kind == "folder":
            whole = _whole_on_master(session, path)
            if whole is not None:
                times.append(SaveTime(name, step, 0, whole.order))
            continue
        stamp = stamp_in(RemoteFile(session, path, state.size)) if len(found) > 1 else None
        order = None if stamp is None else stamp.order
        times.append(SaveTime(name, step, state.mtime_s * 10**9, order))
    return found[oldest_first(times)[-1].name] if times else None


def _whole_on_master(session: TargetSession, path: bytes) -> Whole | None:
    """`whole.json` of a sharded checkpoint on the master; None where it is not complete."""
    mark = sharded_order.own_folder(path) + b"/" + sharded_order.MARK
    state = session.stat(mark)
    if state is None or state.kind != "file" or state.size > MAX_WHOLE_BYTES:
        return None
    try:
        return Whole.decode(session.read(mark, 0, state.size))
    except RemoteProtocolError:
        return None


class RemoteFile(io.RawIOBase):
    """A file on the master, open for reading."""

    def __init__(self, session: TargetSession, path: bytes, size: int) -> None:
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


def _shown(session: TargetSession, item: str) -> Iterator[tuple[bytes, RemoteStat]]:
    """A run's files for the database."""
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
        NotBroughtError: they differ; the file is removed.
    """
    path = f"{CHECKPOINT}/{item}/{os.fsdecode(name)}"
    if not name.endswith(ENDING) and damaged(root, item, [path]):  # else it was compared as it came
        discard(root, *os.path.split(path))
        raise NotBroughtError(
            f"{os.fsdecode(name)} on the master is not what its SHA256SUMS says; see: rla verify"
        )
