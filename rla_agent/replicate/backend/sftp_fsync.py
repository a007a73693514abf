"""Parallel fsync on an SFTP server.

A server's process does one thing at a time, and a sync waits for the disk: files of a batch are spread over
up to `CHANNELS` channels of one connection, whose syncs then share a commit of the file system's journal. A
channel is opened when it is first needed, only where the link is fast enough to fill it, and closed when it
is idle, since each is a process on the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import LinkError

if TYPE_CHECKING:
    import paramiko

FSYNC: Final = b"fsync@openssh.com"
CHANNELS: Final = 4  # of one connection that sync at once; sshd allows ten (MaxSessions)
QUICK_WINDOW_BYTES: Final = 128 << 10  # a link of at least this speed may have more than one channel
NAMES_A_CHANNEL: Final = 16  # fewer files to sync are not worth another one
REST_S: Final = 30.0  # idle time after which channels are closed


class OpenFile(NamedTuple):
    """An open file of a channel: its handle is valid on that channel only."""

    wire: wire.Wire
    handle: bytes


def sync_request(handle: bytes) -> bytes:
    """The request to sync an open file or folder."""
    return wire.request(wire.EXTENDED, FSYNC, handle)


def flush(wires: Iterable[wire.Wire]) -> None:
    """Send the queued requests of all channels, since waiting for one sends only its own."""
    for over in wires:
        over.flush()


class SyncChannels:
    """The channels of a connection; the first one is for all kinds of requests.

    Args:
        first: the existing channel.
        transport: of the connection.
        full: path on the server of a path below the root.
    """

    def __init__(
        self, first: wire.Wire, transport: paramiko.Transport, full: Callable[[bytes], bytes]
    ) -> None:
        self._transport, self._full = transport, full
        self._spread_at = 0.0  # monotonic; when more than one channel was last used
        #: Whether the server syncs, as far as is known.
        self.works = FSYNC in first.extensions
        self._most = CHANNELS if self.works else 1  # limit that the server is known to allow
        self._wires = [first]
        self._new_names: set[bytes] = set()  # unsynced folders in which folders were made

    def spread(self, wanted: int) -> list[wire.Wire]:
        """The channels to spread files over: as many as link and server allow, at least one.

        Raises:
            LinkError: the connection is gone.
        """
        wanted = min(self._most, wanted)
        now = time.monotonic()
        if wanted > 1:
            self._spread_at = now
        elif now - self._spread_at > REST_S:
            for resting in self._wires[1:]:
                resting.close()
            del self._wires[1:]
        while len(self._wires) < wanted and self._wires[0].window_bytes >= QUICK_WINDOW_BYTES:
            if self._one_more() is None:
                break
        return self._wires[: max(1, wanted)]

    def open_beside(self, path: bytes) -> OpenFile | None:
        """Open a file for reading on another channel than the first, to sync it there; None: impossible.

        Raises:
            LinkError: the connection is gone.
        """
        if not self.works:
            return None
        self._spread_at = time.monotonic()
        beside = self._wires[1] if len(self._wires) > 1 else self._one_more() if self._most > 1 else None
        if beside is None:
            return None
        opened = beside.call(wire.open_request(self._full(path), wire.READ_FLAG))
        return OpenFile(beside, opened.handle) if opened.kind == wire.HANDLE else None

    def _one_more(self) -> wire.Wire | None:
        """Another channel; None where the server allows no more."""
        import paramiko  # noqa: PLC0415

        try:
            self._wires.append(wire.open_wire(self._transport))
        except (paramiko.SSHException, EOFError, OSError, LinkError) as error:
            if not self._transport.is_active():
                raise LinkError("start sftp", b"", str(error) or type(error).__name__) from error
            self._most = len(self._wires)
            return None
        return self._wires[-1]

    def await_sync(self, over: wire.Wire, request: int) -> wire.Reply:
        """The reply to a sync, however long the server's disk takes.

        Raises:
            LinkError: the server does not answer any more.
        """
        reply = over.wait_long(request, self._ask_whether_alive)
        if reply.status == wire.OP_UNSUPPORTED:
            self.works = False
        return reply

    def _ask_whether_alive(self) -> None:
        """Check whether the server still answers, so that only its disk is slow.

        Raises:
            LinkError: it does not answer.
        """
        import paramiko  # noqa: PLC0415

        try:
            self._transport.open_session(timeout=wire.ANSWER_S).close()
        except paramiko.ChannelException:
            return  # refused: an answer
        except (paramiko.SSHException, EOFError, OSError) as error:
            why = f"no answer for {wire.REPLY_TIMEOUT_S:g} s: {error}"
            raise LinkError("talk to", b"", why) from error

    def sync_names(self, names: Sequence[bytes]) -> dict[bytes, bool | None]:
        """Open files or folders for reading and sync them; whether each was synced.

        One that cannot be opened was not. None: its sync failed, for which the server's reply is "Failure";
        replies to unsupported requests differ.

        Raises:
            LinkError: the connection is gone.
        """
        wires = self.spread(len(names) // NAMES_A_CHANNEL)
        opens = [
            wires[number % len(wires)].submit(wire.open_request(self._full(name), wire.READ_FLAG))
            for number, name in enumerate(names)
        ]
        flush(wires)
        handles = {}
        for number, request in enumerate(opens):
            reply = wires[number % len(wires)].wait(request)
            if reply.kind == wire.HANDLE:
                handles[number] = reply.handle
        syncs = {
            number: wires[number % len(wires)].submit(sync_request(handle), syncs=True)
            for number, handle in handles.items()
        }
        closes = {
            number: wires[number % len(wires)].submit(wire.request(wire.CLOSE, handle))
            for number, handle in handles.items()
        }
        flush(wires)
        synced: dict[bytes, bool | None] = dict.fromkeys(names, False)
        for number, request in syncs.items():
            status = self.await_sync(wires[number % len(wires)], request).status
            synced[names[number]] = None if status == wire.FAILURE else status == wire.OK
        for number, request in closes.items():
            wires[number % len(wires)].wait(request)
        return synced

    def made_folders_in(self, folders: Iterable[bytes]) -> None:
        """Note folders in which folders were made: `sync_folders` syncs them too."""
        self._new_names.update(folders)

    def sync_folders(self, folders: set[bytes]) -> set[bytes]:
        """Sync folders with new names in them, and those in which folders were made; all that now are.

        Raises:
            LinkError: the connection is gone.
        """
        if not folders:
            return set()
        found = self.sync_names([*folders, *(self._new_names - folders)])
        synced = {name for name, is_synced in found.items() if is_synced}
        made = self._new_names <= synced
        self._new_names -= synced
        return synced if made else set()
