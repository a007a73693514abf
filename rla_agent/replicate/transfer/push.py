"""Sending of selected items by command.

It needs no daemon and no ledger, and uses the replicator's `Sender`. A folder of the master is listed once:
files of the same size and time stay, and get the permissions that they have here. A large file gets a temp
name that identifies its version, so an interrupted push continues where it stopped, less the bytes in flight
then. Temp files of other pushes are removed once nobody can be writing them any more. `whole.json` of a
sharded checkpoint is removed before any of its files is replaced, and sent when none of them failed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.backend.remote_paths import TEMP_PREFIX
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty
from rla_agent.replicate.backend.sftp_wire import MAX_WINDOW_BYTES
from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger_rows import Due, Key
from rla_agent.replicate.transfer import arriving_sharded
from rla_agent.replicate.transfer.selection import ItemSelection, chosen
from rla_agent.replicate.transfer.tally import Say, Tally
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.file_decision import SMALL_BYTES, ReplaceFile
from rla_agent.replicate.worker.scan import Folder, Scanner, ScanScope
from rla_agent.replicate.worker.send import Sender
from rla_agent.replicate.worker.send_job import Failed, SendJob, Sent
from rla_agent.replicate.worker.source_file import local_state
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.text.terminal_text import printable

PUSH_PREFIX: Final = TEMP_PREFIX + b"push-"
PUSH_BATCH: Final = 32
STALE_S: Final = 24 * 3600.0  # a temp file without writes for so long is a leftover


def push(session: TargetSession, root: str, selection: ItemSelection, say: Say = lambda *_: None) -> Tally:
    """Send the selected items of the data root; equal files of the master (size, time) stay."""
    tally = Tally()
    with closing_fd(open_root(root)) as descriptor:
        sender = Sender(
            session, descriptor, lambda job, done: say(os.fsdecode(job.due.path), done, job.due.pending)
        )
        batch: list[SendJob] = []
        marks: list[SendJob] = []
        failed: set[bytes] = set()
        uncalled: set[bytes] = set()
        seen: dict[bytes | None, list[tuple[bytes, Local]]] = {}
        for job in _jobs(session, root, selection, tally, seen):
            if arriving_sharded.is_mark(job.due.path):
                marks.append(job)
                continue
            _uncall(session, job.due.path, uncalled)
            batch.append(job)
            if len(batch) == PUSH_BATCH:
                failed |= _send(session, sender, batch, tally)
                batch = []
        failed |= _send(session, sender, batch, tally)
        for job in marks:
            checkpoint = _checkpoint(job.due.path)
            if checkpoint in failed:
                continue
            if _is_as_seen(root, seen.get(checkpoint, [])):
                _send(session, sender, [job], tally)
            else:
                tally.failed.append(
                    f"{os.fsdecode(job.due.path)}: another save has taken its place; run it again"
                )
    tally.left_out += session.left_out()
    return tally


def _jobs(
    session: TargetSession,
    root: str,
    selection: ItemSelection,
    tally: Tally,
    seen: dict[bytes | None, list[tuple[bytes, Local]]],
) -> Iterator[SendJob]:
    """Files to send; `seen` takes the present files of each sharded checkpoint."""
    scanner = Scanner(os.fsencode(root), ScanScope(host="", kinds=selection.kinds))
    for folder in scanner.everything():
        wanted = {
            name: local
            for name, local in sorted(folder.files.items())
            if chosen(folder.path + b"/" + name if folder.kind == ARCHIVE_TESTER else folder.item, selection)
        }
        if folder.mode is not None and (folder.shared or chosen(folder.item, selection)):
            session.set_modes([(folder.path, folder.mode)], only_less=folder.shared)  # if it is there
        if not wanted:
            continue
        there = _there(session, folder.path)
        modes = []
        checkpoint = _checkpoint(folder.path + b"/.")
        if checkpoint is not None:
            seen.setdefault(checkpoint, []).extend(
                (folder.path + b"/" + name, local) for name, local in wanted.items()
            )
        for name, local in wanted.items():
            found = there.get(name)
            if found is not None and (found.size, found.mtime_s) == (local.size, local.mtime_ns // 10**9):
                tally.same += 1
                if local.mode is not None and found.mode not in {None, local.mode}:
                    modes.append((folder.path + b"/" + name, local.mode))
            else:
                yield _job(folder, name, local, there)
        session.set_modes(modes)
    tally.failed += [
        f"{printable(os.fsdecode(path))}: {why.reason}; {why.fix}" for path, why in scanner.unread.items()
    ]


def _there(session: TargetSession, folder: bytes) -> dict[bytes, RemoteStat]:
    """The master's files in a folder; old temp files of pushes are removed."""
    found = dict(listing_or_empty(session, folder))
    for name, state in list(found.items()):
        if name.startswith(PUSH_PREFIX) and state.kind == "file" and time.time() - state.mtime_s > STALE_S:
            session.remove(folder + b"/" + name)
            del found[name]
    return found


def _job(folder: Folder, name: bytes, local: Local, there: Mapping[bytes, RemoteStat]) -> SendJob:
    path = folder.path + b"/" + name
    due = Due(Key(0, name), path, folder.kind, folder.item, False, local.size, 0, 0, 0.0, (), None)
    if local.size <= SMALL_BYTES:
        temp = folder.path + b"/" + PUSH_PREFIX + secrets.token_hex(8).encode()
        only_this = local if arriving_sharded.is_mark(path) else None
        return SendJob(due, ReplaceFile(local.size), temp, local=only_this)
    version = b"%d %d %d" % (local.size, local.mtime_ns, local.ino)
    temp = PUSH_PREFIX + hashlib.sha256(path + version).hexdigest()[:24].encode()
    begun = there.get(temp)
    start = 0
    if begun is not None and begun.kind == "file" and begun.size <= local.size:
        start = max(0, begun.size - MAX_WINDOW_BYTES)
    if begun is not None and start == 0:  # nothing to continue, and the name is taken
        temp += b"-" + secrets.token_hex(4).encode()
    return SendJob(due, ReplaceFile(local.size), folder.path + b"/" + temp, start)


def _checkpoint(path: bytes) -> bytes | None:
    """Folder of the sharded checkpoint that a file is of."""
    found = arriving_sharded.split(path)
    return None if found is None else found[0]


def _is_as_seen(root: str, files: list[tuple[bytes, Local]]) -> bool:
    """Whether files are unchanged, so that all that is on the master is of one save."""
    try:
        return all(
            local_state(os.lstat(os.path.join(os.fsencode(root), path))) == local for path, local in files
        )
    except OSError:
        return False


def _uncall(session: TargetSession, path: bytes, done: set[bytes]) -> None:
    """Mark a checkpoint incomplete there before a shard or `.metadata` is replaced."""
    checkpoint = path.rpartition(b"/")[0]
    if _checkpoint(path) == checkpoint and checkpoint not in done:
        session.remove(sharded_order.own_folder(checkpoint) + b"/" + sharded_order.MARK)
        done.add(checkpoint)


def _send(session: TargetSession, sender: Sender, batch: list[SendJob], tally: Tally) -> set[bytes]:
    """Send a batch; returns the sharded checkpoints of which a file failed."""
    failed: set[bytes] = set()
    results: list[Sent | Failed] = []
    if batch:
        sender.send_all(batch, results)
    for result in results:
        if isinstance(result, Sent):
            tally.files += 1
            tally.bytes += result.record.acked
            continue
        tally.failed.append(f"{os.fsdecode(result.job.due.path)}: {result.error}")
        checkpoint = _checkpoint(result.job.due.path)
        if checkpoint is not None:
            failed.add(checkpoint)
        with suppress(TargetError):  # after a failed write, the temp file is no valid beginning
            session.remove(result.job.temp)
    return failed
