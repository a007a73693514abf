"""Batch of small files for an SFTP server.

It takes five round trips: stat the final names and open the temp files; write, set time and permissions,
sync, close; (source re-stat); rename; open the folders and sync them. The files are spread over several
channels (`sftp_fsync`). A file that has a twin on the server is linked to it by `hardlink@openssh.com`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import SourceChangedError, TargetError, TransientError
from rla_agent.replicate.backend.remote_paths import parent
from rla_agent.replicate.backend.remote_stat import RemoteStat, same
from rla_agent.replicate.backend.sftp_calls import CheckedCalls
from rla_agent.replicate.backend.sftp_fsync import OpenFile, SyncChannels, flush, sync_request
from rla_agent.replicate.backend.small_file import SmallFile

HARDLINK: Final = b"hardlink@openssh.com"
FILES_A_CHANNEL: Final = 4  # fewer files to write are not worth another channel
_FINISH: Final = "set the time and permissions of"
_SYNC: Final = "sync"


def _write(over: wire.Wire, handle: bytes, data: memoryview) -> list[int]:
    """Queue all writes of a file; returns the requests."""
    sent = []
    at = 0
    while at < len(data):
        piece = data[at : at + over.chunk_bytes()]
        sent.append(over.submit(wire.write_request(handle, at, len(piece)), piece))
        at += len(piece)
    return sent


class SmallFileBatch:
    """Files that are sent together; each has its own outcome.

    Args:
        calls: of the session.
        channels: of its connection.
        files: what is sent.
    """

    def __init__(self, calls: CheckedCalls, channels: SyncChannels, files: Sequence[SmallFile]) -> None:
        self._calls, self._channels, self._files = calls, channels, files
        self._results: list[RemoteStat | Exception | None] = [None] * len(files)  # None: none so far
        self._left: dict[int, RemoteStat] = {}  # by number, where it is not the sent time
        self._handles: dict[int, OpenFile] = {}  # of temp files that were written
        self._synced: set[int] = set()

    def put(self) -> list[RemoteStat | Exception]:
        """Send them; for each its state on the server, or the error. See `session.Session.put_many`."""
        self._link_twins()
        self._open()
        self._write()
        for number, file in enumerate(self._files):
            if self._results[number] is None and not file.unchanged():
                self._results[number] = SourceChangedError(file.path)
        self._rename()
        self._sync_folders()
        failed = [n for n in (*self._handles, *self._left) if isinstance(self._results[n], Exception)]
        temps = [self._calls.full(self._files[number].temp) for number in failed]
        self._calls.wire.calls([wire.request(wire.REMOVE, temp) for temp in temps])
        return [result or TransientError("send", b"", "no result") for result in self._results]

    def _link_twins(self) -> None:
        """Link temp names to their twins; the other files are written."""
        calls = self._calls
        wanted = [
            (number, file.temp, file.twin)
            for number, file in enumerate(self._files)
            if file.twin is not None and HARDLINK in calls.wire.extensions
        ]
        requests = []
        for _, temp, twin in wanted:
            requests.append(wire.request(wire.EXTENDED, HARDLINK, calls.full(twin.path), calls.full(temp)))
            requests.append(calls.lstat(temp))
        replies = iter(calls.wire.calls(requests))
        for (number, temp, twin), made, look in zip(wanted, replies, replies, strict=True):
            if made.status != wire.OK or look.kind != wire.ATTRS:
                continue
            found = look.state
            if same(found, twin.left) and self._files[number].mode == (found.mode or 0) & 0o777:
                self._left[number] = found
            else:
                calls.remove(temp)

    def _open(self) -> None:
        calls = self._calls
        wires = self._channels.spread(len(self._files) // FILES_A_CHANNEL)
        looks = [
            wires[number % len(wires)].submit(calls.lstat(file.path))
            for number, file in enumerate(self._files)
        ]
        opens = {
            number: wires[number % len(wires)].submit(
                wire.open_request(calls.full(file.temp), wire.NEW_FILE, file.mode | 0o600)
            )
            for number, file in enumerate(self._files)
            if number not in self._left
        }
        flush(wires)
        for number, file in enumerate(self._files):
            over = wires[number % len(wires)]
            problem = calls.conflict(over.wait(looks[number]), file.path, file.expect)
            self._results[number] = problem
            if number not in opens:
                continue
            opened = over.wait(opens[number])
            self._results[number] = problem or calls.problem(opened, "create", file.temp)
            if opened.kind == wire.HANDLE:
                self._handles[number] = OpenFile(over, opened.handle)

    def _write(self) -> None:
        """Write, sync and close; all syncs come after all writes, to share the wait for the disk."""
        refused = {}
        for number, operation, request in self._ask_writes():
            over = self._handles[number].wire
            reply = self._channels.await_sync(over, request) if operation == _SYNC else over.wait(request)
            if operation == _SYNC and reply.status in {wire.OK, wire.OP_UNSUPPORTED}:
                self._synced.update({number} if reply.status == wire.OK else ())
            elif operation == _FINISH and reply.status != wire.OK:
                refused[number] = reply
            elif self._results[number] is None:
                self._results[number] = self._calls.problem(reply, operation, self._files[number].path)
        for number, reply in refused.items():
            if self._results[number] is None:
                found = self._calls.unfinished(self._files[number], reply)
                if isinstance(found, RemoteStat):
                    self._left[number] = found
                else:
                    self._results[number] = found

    def _ask_writes(self) -> list[tuple[int, str, int]]:
        """The requests of `_write`: (number of the file, operation, request)."""
        pending: list[tuple[int, str, int]] = []
        for number, (over, handle) in self._handles.items():
            file = self._files[number]
            data = memoryview(file.data) if self._results[number] is None else memoryview(b"")
            pending += [(number, "write", request) for request in _write(over, handle, data)]
            pending.append((number, _FINISH, over.submit(self._calls.finish_request(handle, file))))
        for number, (over, handle) in self._handles.items() if self._channels.works else ():
            if self._files[number].durable and self._results[number] is None:
                pending.append((number, _SYNC, over.submit(sync_request(handle), syncs=True)))
        for number, (over, handle) in self._handles.items():
            pending.append((number, "close", over.submit(wire.request(wire.CLOSE, handle))))
        flush(dict.fromkeys(over for over, _ in self._handles.values()))
        return pending

    def _rename(self) -> None:
        calls, files = self._calls, self._files
        ready = {
            number: self._left.get(number) or RemoteStat(len(files[number].data), files[number].mtime_s)
            for number, result in enumerate(self._results)
            if result is None
        }
        if not calls.posix_rename:
            for number, state in ready.items():
                try:
                    calls.rename(files[number].temp, files[number].path)
                    self._results[number] = state
                except TargetError as error:
                    self._results[number] = error
            return
        requests = [calls.rename_request(files[number].temp, files[number].path) for number in ready]
        for (number, state), reply in zip(ready.items(), calls.wire.calls(requests), strict=True):
            self._results[number] = calls.problem(reply, "rename", files[number].path) or state

    def _sync_folders(self) -> None:
        """Sync the folders in which synced files have got their names."""
        named = {n: found for n in self._synced if isinstance(found := self._results[n], RemoteStat)}
        folders = self._channels.sync_folders({parent(self._files[number].path) for number in named})
        for number, found in named.items():
            self._results[number] = replace(found, synced=parent(self._files[number].path) in folders)
