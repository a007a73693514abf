"""Background syncs of a large file during its upload to an SFTP server.

They use another channel than the upload, if there is one. So little is left to be written out at the end,
and a later attempt may continue behind the synced prefix. Where rights or the extension are missing, only the
last sync takes place, on the handle of the upload.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import LinkError, TargetError
from rla_agent.replicate.backend.sftp_fsync import OpenFile, SyncChannels, sync_request
from rla_agent.replicate.backend.upload import SYNC_BYTES, Upload

SYNC_S: Final = 10.0  # period of syncs of a large file on a slow link
Check: TypeAlias = "Callable[[wire.Reply, str, bytes], None]"  # raises `TargetError` unless the reply is OK


class SyncBehind:
    """Keeps one file synced; see the module's text.

    Args:
        channels: of the connection.
        job: what is sent.
        own: the file on the channel that sends it.
        check: of a reply to a request of that name about that path.
    """

    def __init__(self, channels: SyncChannels, job: Upload, own: OpenFile, check: Check) -> None:
        self._channels, self._job, self._own, self._check = channels, job, own, check
        self._open: OpenFile | None = None
        self._asked_at, self._asked = time.monotonic(), job.start
        self._request: int | None = None
        self._works = channels.works

    def confirmed(self, at: int) -> None:
        """Take the number of bytes on the server, and sync them when it is time.

        Raises:
            TargetError: as `end`.
        """
        if not self._works:
            return
        if self._request is not None:
            self._take_answer()
        elif at - self._asked >= SYNC_BYTES or (
            at > self._asked and time.monotonic() - self._asked_at >= SYNC_S
        ):
            self._open = self._open or self._channels.open_beside(self._job.temp) or self._own
            over, handle = self._open
            self._request = over.submit(sync_request(handle), syncs=True)
            over.flush()
            self._asked, self._asked_at = at, time.monotonic()

    def _take_answer(self) -> None:
        assert self._open is not None
        assert self._request is not None
        over = self._open.wire
        over.poll()
        if over.answered(self._request):
            self.end()

    def end(self) -> None:
        """Wait for the sync that is under way.

        Raises:
            TargetError: it failed; the bytes written by then may be lost, and must not be used.
        """
        if self._open is None or self._request is None:
            return
        request, self._request = self._request, None
        reply = self._channels.await_sync(self._open.wire, request)
        self._works = reply.status not in {wire.OP_UNSUPPORTED, wire.PERMISSION_DENIED}
        if self._works:
            self._check(reply, "sync", self._job.path)
            self._job.synced(self._asked)

    def close(self) -> None:
        """Close the file on the server."""
        if self._open is not None and self._open is not self._own:
            with suppress(TargetError):  # if the connection is gone, so is the handle
                self.end()
            over, handle = self._open
            with suppress(LinkError):
                over.call(wire.request(wire.CLOSE, handle))
