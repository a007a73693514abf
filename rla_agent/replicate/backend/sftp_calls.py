"""Checked requests about paths on an SFTP server.

The server's answers become the errors of `session.Session`. Without posix-rename the old file is moved aside,
the new one renamed, the old one removed; the name is missing for two round trips.
"""

from __future__ import annotations

import struct
from typing import Final

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import (
    ConflictError,
    DeniedError,
    FullError,
    MissingError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.master_room import ROOM_BYTES
from rla_agent.replicate.backend.remote_modes import warn_of_modes
from rla_agent.replicate.backend.remote_paths import check_remote
from rla_agent.replicate.backend.remote_stat import RemoteStat, same
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload

POSIX_RENAME: Final = b"posix-rename@openssh.com"
STATVFS: Final = b"statvfs@openssh.com"
_READ_ONLY: Final = 1  # SSH_FXE_STATVFS_ST_RDONLY
_SUFFIX_ASIDE: Final = b".old"


class CheckedCalls:
    """Requests of one session at an SFTP server.

    Args:
        over: the channel.
        root: what paths are below.
    """

    def __init__(self, over: wire.Wire, root: bytes) -> None:
        self.wire = over
        self.root = root.rstrip(b"/") or (b"/" if root.startswith(b"/") else b".")
        #: Whether the server sets permissions; True until it refused.
        self.keeps_modes = True
        self.posix_rename = POSIX_RENAME in over.extensions

    def full(self, path: bytes) -> bytes:
        """Path on the server."""
        return self.root.rstrip(b"/") + b"/" + path if check_remote(path) else self.root

    def lstat(self, path: bytes) -> bytes:
        """The request for the state of a name."""
        return wire.request(wire.LSTAT, self.full(path))

    def stat(self, path: bytes) -> RemoteStat | None:
        """State of a path, None where nothing is there; as `session.Session.stat`."""
        reply = self.wire.call(self.lstat(path))
        if reply.status == wire.NO_SUCH_FILE:
            return None
        self.check(reply, "look at", path)
        return reply.state

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename `old` to `new`, replacing a file of that name; as `session.Session.rename`."""
        reply = self.wire.call(self.rename_request(old, new))
        if reply.status == wire.OP_UNSUPPORTED:
            self.posix_rename = False
            reply = self.wire.call(self.rename_request(old, new))
        replaces = reply.status == wire.FAILURE and not self.posix_rename
        in_the_way = self.stat(new) if replaces else None
        if in_the_way is not None and in_the_way.kind != "folder":
            aside = old + _SUFFIX_ASIDE
            self.ask(wire.request(wire.RENAME, self.full(new), self.full(aside)), "rename", new)
            reply = self.wire.call(self.rename_request(old, new))
            self.remove(aside)
        self.check(reply, "rename", new)

    def rename_request(self, old: bytes, new: bytes) -> bytes:
        """The request that renames `old` to `new`, replacing a file where the server can."""
        if self.posix_rename:
            return wire.request(wire.EXTENDED, POSIX_RENAME, self.full(old), self.full(new))
        return wire.request(wire.RENAME, self.full(old), self.full(new))

    def remove(self, path: bytes) -> None:
        """Remove a file, if it is there; as `session.Session.remove`."""
        reply = self.wire.call(wire.request(wire.REMOVE, self.full(path)))
        if reply.status != wire.NO_SUCH_FILE:
            self.check(reply, "remove", path)

    def finish_request(self, handle: bytes, file: SmallFile | Upload) -> bytes:
        """The request that sets time and permissions of an open temp file."""
        mode = file.mode if self.keeps_modes else None
        return wire.setstat(wire.FSETSTAT, handle, mode=mode, mtime_s=file.mtime_s)

    def unfinished(self, file: SmallFile | Upload, refused: wire.Reply) -> RemoteStat | TargetError:
        """State of the temp file where the server sets no permissions, or no time either."""
        time_alone = wire.setstat(wire.SETSTAT, self.full(file.temp), mtime_s=file.mtime_s)
        _, look = self.wire.calls([time_alone, self.lstat(file.temp)])
        problem = self.problem(look, "look at", file.temp)
        if problem is not None:
            return problem
        self.keeps_modes = False
        self.warn_of_modes(refused)
        return look.state

    def warn_of_modes(self, reply: wire.Reply) -> None:
        """Warn once that the server sets no permissions."""
        warn_of_modes(f"the master below {self.root.decode('utf-8', 'replace')}", reply.text or "Failure")

    def ask_free(self) -> int | None:
        """Send the request whose reply `answer_free` awaits."""
        if STATVFS not in self.wire.extensions:
            return None
        return self.wire.submit(wire.request(wire.EXTENDED, STATVFS, self.root))

    def answer_free(self, request: int | None) -> int | None:
        """Free bytes on the server, None where they are unknown."""
        return self._disk(request)[0]

    def _disk(self, request: int | None) -> tuple[int | None, bool]:
        """Free bytes, None where unknown, and whether the disk is mounted read-only."""
        reply = None if request is None else self.wire.wait(request)
        if reply is None or reply.kind != wire.EXTENDED_REPLY or len(reply.body) < 88:  # noqa: PLR2004 - 11 uint64
            return None, False
        _, fragment, _, _, available, _, _, _, _, flags, _ = struct.unpack_from(">11Q", reply.body)
        return int(fragment * available), bool(flags & _READ_ONLY)

    def conflict(self, look: wire.Reply, path: bytes, expect: RemoteStat | None) -> TargetError | None:
        """Conflict with the state in the reply to `look`, if there is one."""
        if look.status == wire.NO_SUCH_FILE:
            return None  # no file that could be overwritten
        problem = self.problem(look, "look at", path)
        if problem is not None:
            return problem
        found = look.state
        return None if same(found, expect) else ConflictError("send", path, found)

    def problem(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError | None:
        """The error in a reply; None where it succeeded."""
        status = reply.status
        if status == wire.OK:
            return None
        if status == wire.NO_SUCH_FILE:
            return MissingError(operation, path, "not there")
        if status == wire.PERMISSION_DENIED:
            what = "permission denied on the master"
            return DeniedError(operation, path, what, "give the folder to this user")
        if status == wire.OP_UNSUPPORTED:
            return DeniedError(operation, path, "the server cannot do this", "see rla-agent doctor --master")
        return self._explain(reply, operation, path)

    def _explain(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError:
        """Explain the reply "Failure", which covers all other errors; a full disk is the usual reason."""
        free, read_only = self._disk(self.ask_free())
        if read_only:
            why = "the master's disk is mounted read-only"
            return FullError(operation, path, why, "mount the master's disk for writing")
        if free is not None and free < ROOM_BYTES:
            return FullError(operation, path, "the master's disk is full", "free space on the master")
        hint = "a quota on the master, or a file where a folder should be?"
        return TransientError(operation, path, reply.text or "Failure", hint)

    def check(self, reply: wire.Reply, operation: str, path: bytes) -> None:
        """Raise the error in a reply."""
        problem = self.problem(reply, operation, path)
        if problem is not None:
            raise problem

    def ask(self, request: bytes, operation: str, path: bytes) -> wire.Reply:
        """Send a request that must succeed; returns its reply."""
        reply = self.wire.call(request)
        self.check(reply, operation, path)
        return reply
