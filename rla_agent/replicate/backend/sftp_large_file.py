"""Upload of a large file to an SFTP server.

It is sent in writes of up to 255 KiB, as many in flight as the wire's window allows, and synced piece by
piece (`sftp_sync_behind`); a later attempt may continue behind the confirmed prefix.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import (
    SourceChangedError,
    TargetError,
    TransientError,
    UnreadableError,
)
from rla_agent.replicate.backend.remote_paths import parent
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.sftp_calls import CheckedCalls
from rla_agent.replicate.backend.sftp_fsync import OpenFile, SyncChannels, sync_request
from rla_agent.replicate.backend.sftp_sync_behind import SyncBehind
from rla_agent.replicate.backend.upload import Upload

_SYNC: Final = "sync"


class LargeFile:
    """One file that is sent, beginning at `Upload.start`.

    Args:
        calls: of the session.
        channels: of its connection.
        job: what is sent.
    """

    def __init__(self, calls: CheckedCalls, channels: SyncChannels, job: Upload) -> None:
        self._calls, self._wire, self._channels = calls, calls.wire, channels
        self._job = job

    def put(self) -> RemoteStat:
        """Send it; returns its state on the server. See `session.Session.upload`."""
        calls, job = self._calls, self._job
        handle = self._open()
        behind = SyncBehind(self._channels, job, OpenFile(self._wire, handle), calls.check)
        try:
            self._send_body(handle, behind)
            self._check_size(handle)
            finished, synced = self._finish(handle)
            behind.end()
        finally:
            behind.close()
        left = RemoteStat(job.size, job.mtime_s)
        if finished.status != wire.OK:
            found = calls.unfinished(job, finished)
            if isinstance(found, TargetError):
                raise found
            left = found
        if not job.unchanged():
            calls.remove(job.temp)
            raise SourceChangedError(job.path)
        calls.rename(job.temp, job.path)
        folder = parent(job.path)
        return replace(left, synced=synced and folder in self._channels.sync_folders({folder}))

    def _open(self) -> bytes:
        """Handle of the temp file."""
        calls, job = self._calls, self._job
        flags = wire.NEW_FILE if job.start == 0 else wire.WRITE_FLAG
        request = wire.open_request(calls.full(job.temp), flags, job.mode | 0o600)
        handle = calls.ask(request, "create", job.temp).handle
        if job.start and calls.keeps_modes:  # a partial file may have wider permissions than that
            self._wire.call(wire.setstat(wire.FSETSTAT, handle, mode=job.mode | 0o600))
        return handle

    def _send_body(self, handle: bytes, behind: SyncBehind) -> None:
        job, waiting = self._job, deque[tuple[int, int]]()
        at = job.start
        while at < job.size:
            try:
                data = job.read(at, min(self._wire.chunk_bytes(), job.size - at))
            except UnreadableError:
                self._abandon(waiting, handle)
                raise
            if not data:
                self._abandon(waiting, handle)
                raise SourceChangedError(job.path)
            request = wire.write_request(handle, at, len(data))
            waiting.append((self._wire.submit(request, data), at + len(data)))
            at += len(data)
            while waiting and self._wire.answered(waiting[0][0]):
                self._confirm(waiting, behind)
        while waiting:
            self._confirm(waiting, behind)

    def _confirm(self, waiting: deque[tuple[int, int]], behind: SyncBehind) -> None:
        request, end = waiting.popleft()
        self._calls.check(self._wire.wait(request), "write", self._job.path)
        self._job.progress(end)
        behind.confirmed(end)

    def _abandon(self, waiting: deque[tuple[int, int]], handle: bytes) -> None:
        while waiting:
            self._wire.wait(waiting.popleft()[0])
        self._wire.call(wire.request(wire.CLOSE, handle))
        self._calls.remove(self._job.temp)

    def _check_size(self, handle: bytes) -> None:
        job = self._job
        size = self._calls.ask(wire.request(wire.FSTAT, handle), "look at", job.temp).size
        if size != job.size:  # an unknown size counts as none
            self._wire.call(wire.request(wire.CLOSE, handle))
            self._calls.remove(job.temp)
            raise TransientError("send", job.path, f"the master holds {size} bytes of {job.size}")

    def _finish(self, handle: bytes) -> tuple[wire.Reply, bool]:
        """Set time and permissions, sync, close: the answer to the first, and whether it is synced."""
        finish = self._wire.submit(self._calls.finish_request(handle, self._job))
        sync = self._wire.submit(sync_request(handle), syncs=True) if self._channels.works else None
        close = self._wire.submit(wire.request(wire.CLOSE, handle))
        finished = self._wire.wait(finish)
        synced = self._await_sync(sync)
        self._calls.check(self._wire.wait(close), "close", self._job.path)
        return finished, synced

    def _await_sync(self, sync: int | None) -> bool:
        """Whether the file was synced; one whose sync failed must not be renamed."""
        if sync is None:
            return False
        reply = self._channels.await_sync(self._wire, sync)
        if reply.status == wire.OP_UNSUPPORTED:
            return False
        self._calls.check(reply, _SYNC, self._job.path)
        return True
