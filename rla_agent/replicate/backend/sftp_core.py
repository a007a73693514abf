"""What every SFTP session does: requests with checked replies, the errors of `target`, folders, names.

`sftp.SftpSession` adds the transfers. A server without posix-rename: the old file is moved aside, the
new one renamed, the old one removed; the name is missing for two round trips. Without statvfs
`free_bytes` is None, without hardlink files with a twin are written like others.

A root that is not there is `NoRootError`: a mistyped name must not fill a second database.
"""

from __future__ import annotations

import stat as stat_bits
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.target import (
    ROOM_BYTES,
    BlockedError,
    ConflictError,
    DeniedError,
    FullError,
    Kind,
    LinkError,
    MissingError,
    ModeOf,
    NoRootError,
    RemoteStat,
    TargetError,
    TransientError,
    check_remote,
    mode_for_umask,
    new_mode,
    parents,
    same,
    warn_of_modes,
)

if TYPE_CHECKING:
    import paramiko

POSIX_RENAME: Final = b"posix-rename@openssh.com"
STATVFS: Final = b"statvfs@openssh.com"
HARDLINK: Final = b"hardlink@openssh.com"
_SUFFIX_ASIDE: Final = b".old"


class SftpCore:
    """The part of a `target.Session` over SFTP that moves no content."""

    defers: Final = False

    def together(self) -> AbstractContextManager[None]:
        """See `Session`; each goes at once."""
        return nullcontext()

    def __init__(
        self,
        link: wire.Wire,
        root: bytes,
        transport: paramiko.Transport | None = None,
        *,
        make_root: bool = False,
    ) -> None:
        """`make_root`: make the root where it is not there."""
        self._wire = link
        self._transport = transport
        self._root = root.rstrip(b"/") or (b"/" if root.startswith(b"/") else b".")
        self._folders: set[bytes] = set()
        self.extensions = link.extensions
        self._posix_rename = POSIX_RENAME in link.extensions
        self._keeps_modes = True
        self._check_root(make=make_root)

    @property
    def written_bytes(self) -> int:
        """See `Session`."""
        return self._wire.written_bytes

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `Session`."""
        reply = self._call(self._lstat(path))
        if reply.status == wire.NO_SUCH_FILE:
            return None
        self._check(reply, "look at", path)
        return remote_stat(reply.attributes)

    def reaches(self, absolute: bytes) -> bool:
        """Whether the login can see an absolute path outside of the root, as without a chroot."""
        return self._call(wire.path_request(wire.LSTAT, absolute)).kind == wire.ATTRS

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `Session`."""
        reply = self._ask(wire.path_request(wire.OPENDIR, self._full(path)), "list", path)
        handle = reply.handle
        found: list[tuple[bytes, RemoteStat]] = []
        while True:
            reply = self._call(wire.path_request(wire.READDIR, handle))
            if reply.kind != wire.NAME:
                break
            found += [(name, remote_stat(attributes)) for name, attributes in wire.parse_names(reply.body)]
        self._call(wire.close_request(handle))
        if reply.status != wire.EOF:
            self._check(reply, "list", path)
        return [(name, state) for name, state in found if name not in {b".", b".."}]

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `Session`; all requests are in flight at once."""
        wanted = dict.fromkeys(folder for path in paths for folder in parents(check_remote(path)))
        missing = [folder for folder in wanted if folder not in self._folders]
        modes = {folder: mode_of(folder) for folder in missing} if mode_of is not None else {}
        replies = self._calls(
            [
                wire.mkdir_request(self._full(folder), _first_mode(*modes[folder]) if modes else None)
                for folder in missing
            ]
        )
        looks = self._calls([self._lstat(folder) for folder in missing])
        changes: list[tuple[bytes, int]] = []
        for folder, reply, look in zip(missing, replies, looks, strict=True):
            found = self._folder_found(folder, reply, look)
            if modes:
                mode, shared = modes[folder]
                changed = new_mode(found, mode, only_less=shared or reply.status != wire.OK)
                changes += [] if changed is None else [(folder, changed)]
        self._change_modes(changes, warn=all(reply.status == wire.OK for reply in replies))
        self._folders.update(missing)

    def _folder_found(self, folder: bytes, made: wire.Reply, look: wire.Reply) -> RemoteStat:
        if look.status == wire.NO_SUCH_FILE:
            self._check(made, "make folder", folder)
        self._check(look, "look at", folder)
        found = remote_stat(look.attributes)
        if found.kind != "folder":
            what = f"a {found.kind} of that name is in the way"
            raise DeniedError("make folder", folder, what, "rename it on the master")
        return found

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `Session`; all requests are in flight at once, and links are left alone."""
        looks = self._calls([self._lstat(path) for path, _ in wanted])
        results, changes = [], []
        for (path, mode), look in zip(wanted, looks, strict=True):
            results.append(self._problem(look, "look at", path))
            if results[-1] is None:
                found = remote_stat(look.attributes)
                changed = new_mode(found, mode, only_less=only_less)
                changes += [] if changed is None else [(path, changed)]
        self._change_modes(changes, warn=not only_less)
        return results

    def _change_modes(self, changes: Sequence[tuple[bytes, int]], *, warn: bool) -> None:
        """`warn` of a server that refuses: a shared folder may be another user's."""
        replies = self._calls([wire.setstat(wire.SETSTAT, self._full(path), mode=m) for path, m in changes])
        for reply in replies:
            if warn and reply.status not in {wire.OK, wire.NO_SUCH_FILE}:
                self._warn_of_modes(reply)

    def _warn_of_modes(self, reply: wire.Reply) -> None:
        warn_of_modes(f"the master below {self._root.decode('utf-8', 'replace')}", reply.text or "Failure")

    def forget_folders(self) -> None:
        """Look again whether folders are there."""
        self._folders.clear()

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `Session`."""
        opened = self._ask(wire.open_request(self._full(path), wire.READ_FLAG), "open", path)
        size = self._wire.read_bytes
        spans = [(at, min(size, offset + count - at)) for at in range(offset, offset + count, size)]
        replies = self._calls([wire.read_request(opened.handle, at, length) for at, length in spans])
        self._call(wire.close_request(opened.handle))
        found = bytearray()
        for (at, length), reply in zip(spans, replies, strict=True):
            if reply.status == wire.EOF:
                break
            self._check(reply, "read", path)
            data = reply.handle  # DATA has the layout of HANDLE
            found += data[:length]
            if len(data) < length:
                rest = offset + count - at - len(data)
                return bytes(found) + (self.read(path, at + len(data), rest) if data else b"")
        return bytes(found)

    def truncate(self, path: bytes, size: int) -> None:
        """See `Session`."""
        request = bytes([wire.SETSTAT]) + wire.string(self._full(path)) + struct.pack(">IQ", 1, size)
        self._ask(request, "cut", path)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `Session`."""
        reply = self._call(self._rename_request(old, new))
        if reply.status == wire.OP_UNSUPPORTED:
            self._posix_rename = False
            reply = self._call(self._rename_request(old, new))
        if reply.status == wire.FAILURE and not self._posix_rename and self.stat(new) is not None:
            aside = old + _SUFFIX_ASIDE
            self._ask(wire.rename_request(self._full(new), self._full(aside)), "rename", new)
            reply = self._call(self._rename_request(old, new))
            self.remove(aside)
        self._check(reply, "rename", new)

    def remove(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.REMOVE, self._full(path)))
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove", path)

    def remove_folder(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.RMDIR, self._full(path)))
        self._folders.clear()
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove folder", path)

    def free_bytes(self) -> int | None:
        """See `Session`."""
        return self._answer_free(self._ask_free())

    def _ask_free(self) -> int | None:
        """Send the question that `_answer_free` waits for."""
        if STATVFS not in self.extensions:
            return None
        return self._submit(wire.extended_request(STATVFS, self._root))

    def _answer_free(self, request: int | None) -> int | None:
        if request is None:
            return None
        reply = self._wait(request)
        if reply.kind != wire.EXTENDED_REPLY or len(reply.body) < 88:  # noqa: PLR2004 - eleven uint64
            return None
        _, fragment, _, _, available = struct.unpack_from(">QQQQQ", reply.body)
        return int(fragment * available)

    def close(self) -> None:
        """See `Session`."""
        with suppress(OSError, EOFError):  # the link may be gone already
            self._wire.close()
        if self._transport is not None:
            with suppress(OSError, EOFError):
                self._transport.close()

    def _check_root(self, *, make: bool) -> None:
        try:
            found = self._call(wire.path_request(wire.STAT, self._root))
            if found.status == wire.NO_SUCH_FILE and make:
                self._make_root()
                return
            if found.status == wire.NO_SUCH_FILE:
                what = f"the remote root {self._root.decode('utf-8', 'replace')} does not exist"
                raise NoRootError("look at", b"", what, "correct remote_data_root")
            self._check(found, "look at", b"")
            if remote_stat(found.attributes).kind != "folder":
                raise BlockedError(
                    "look at", b"", "the remote root is not a folder", "correct remote_data_root"
                )
        except DeniedError as error:
            raise BlockedError(
                "look at", b"", error.why, "correct remote_data_root, or its permissions"
            ) from error

    def _make_root(self) -> None:
        parts = self._root.split(b"/")
        for count in range(1, len(parts) + 1):
            folder = b"/".join(parts[:count])
            reply = self._call(wire.mkdir_request(folder)) if folder else None
        if reply is not None and reply.status not in {wire.OK, wire.FAILURE}:
            raise BlockedError(
                "make folder",
                b"",
                f"{self._root.decode('utf-8', 'replace')}: {reply.text}",
                "make the remote_data_root on the master and give it to this user",
            )

    def _full(self, path: bytes) -> bytes:
        return self._root.rstrip(b"/") + b"/" + path if check_remote(path) else self._root

    def _lstat(self, path: bytes) -> bytes:
        return wire.path_request(wire.LSTAT, self._full(path))

    def _rename_request(self, old: bytes, new: bytes) -> bytes:
        if self._posix_rename:
            return wire.extended_request(POSIX_RENAME, self._full(old), self._full(new))
        return wire.rename_request(self._full(old), self._full(new))

    def _conflict(self, look: wire.Reply, path: bytes, expect: RemoteStat | None) -> TargetError | None:
        if look.status == wire.NO_SUCH_FILE:
            return None  # gone, or not there yet: nothing that could be overwritten
        problem = self._problem(look, "look at", path)
        if problem is not None:
            return problem
        found = remote_stat(look.attributes)
        return None if same(found, expect) else ConflictError("send", path, found)

    def _problem(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError | None:
        status = reply.status
        if status == wire.OK:
            return None
        if status == wire.NO_SUCH_FILE:
            return MissingError(operation, path, "not there")
        if status == wire.PERMISSION_DENIED:
            return DeniedError(
                operation, path, "permission denied on the master", "give the folder to this user"
            )
        if status == wire.OP_UNSUPPORTED:
            return DeniedError(operation, path, "the server cannot do this", "see rla-agent doctor --master")
        return self._explain(reply, operation, path)

    def _explain(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError:
        """sftp-server says "Failure" for whatever else went wrong; a full disk is the usual reason."""
        free = self.free_bytes()
        if free is not None and free < ROOM_BYTES:
            return FullError(operation, path, "the master's disk is full", "free space on the master")
        return TransientError(
            operation,
            path,
            reply.text or "Failure",
            "a quota on the master, or a file where a folder should be?",
        )

    def _check(self, reply: wire.Reply, operation: str, path: bytes) -> None:
        problem = self._problem(reply, operation, path)
        if problem is not None:
            raise problem

    def _ask(self, request: bytes, operation: str, path: bytes) -> wire.Reply:
        """The reply to a request that must go well."""
        reply = self._call(request)
        self._check(reply, operation, path)
        return reply

    def _call(self, request: bytes) -> wire.Reply:
        return self._wait(self._submit(request))

    def _calls(self, requests: Sequence[bytes]) -> list[wire.Reply]:
        pending = [self._submit(request) for request in requests]
        return [self._wait(request) for request in pending]

    def _submit(self, request: bytes) -> int:
        try:
            return self._wire.submit(request)
        except (wire.WireError, struct.error) as error:
            raise LinkError("talk to", b"", str(error)) from error

    def _wait(self, request: int) -> wire.Reply:
        try:
            return self._wire.wait(request)
        except (wire.WireError, struct.error) as error:
            raise LinkError("talk to", b"", str(error)) from error

    def _drain(self) -> None:
        with suppress(wire.WireError):  # if the connection is gone, so is the handle
            self._wire.drain()


def _first_mode(mode: int, shared: bool) -> int:
    return mode_for_umask(mode) if shared else mode


def remote_stat(attributes: wire.Attributes) -> RemoteStat:
    """What the rest of the package calls it."""
    mode = attributes.mode or 0
    kind: Kind = "file"
    if stat_bits.S_ISDIR(mode):
        kind = "folder"
    elif stat_bits.S_ISLNK(mode):
        kind = "link"
    elif not stat_bits.S_ISREG(mode):
        kind = "other"
    bits = None if attributes.mode is None else stat_bits.S_IMODE(mode)
    return RemoteStat(attributes.size or 0, attributes.mtime_s or 0, kind, bits)
