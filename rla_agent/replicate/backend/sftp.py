"""The SFTP target: pipelined, every reply checked, renamed into place by `posix-rename@openssh.com`.

Small files go in batches on one channel, so a batch of 64 takes four round trips: look at the final names
and open the temp files; write, set time and permissions, close; (source re-stat); rename. A large file goes
in writes of up to 255 KiB, as many in flight as the wire's window allows; the confirmed prefix is what a
later try may start from. Appends are one write each, awaited. A small file that has a twin on the server is
linked to it by `hardlink@openssh.com`, and written where that does not go.

Where a CSV has much to catch up, the server makes the copy that is continued (`extend`).

`trust` (`rla-agent trust HOST`) is the one place that adds a host key, and only after it was shown and
accepted. In this order: show the master's key and its fingerprint; pin it in
`<state>/replicate/known_hosts`; make a key of our own (ed25519) if none of the user's is taken; print the
authorized_keys line; then, once the master lets us in, make the remote root if it is not there, and write,
rename and delete a test file under it. Replication itself never makes the root, so that a mistyped name
does not become a second database.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.connect import (
    HANDSHAKE_TIMEOUT_S,
    OWN_KNOWN_HOSTS,
    Login,
    fingerprint,
    host_key_problem,
    open_transport,
    own_key,
    pin,
    server_key,
)
from rla_agent.replicate.backend.sftp_core import HARDLINK, SftpCore, remote_stat
from rla_agent.replicate.backend.target import (
    LinkError,
    LoginError,
    NoRootError,
    RemoteStat,
    Session,
    SmallFile,
    SourceChangedError,
    TargetError,
    TransientError,
    UnreadableError,
    Upload,
    check_append,
    check_room,
    replace_own,
    same,
)

_TRIED_MODE: Final = 0o660  # a umask takes of it, so it shows whether the server sets it afterwards
COPY_DATA: Final = b"copy-data"
_FINISH: Final = "set the time and permissions of"
_NEW: Final = wire.WRITE_FLAG | wire.CREATE_FLAG | wire.EXCLUSIVE_FLAG


def open_sftp(login: Login, root: str, *, make_root: bool = False) -> SftpSession:
    """Connect, log in, start SFTP and check that the root is a folder; `make_root`: make it if need be.

    Raises:
        LinkError: the master cannot be reached now.
        BlockedError: host key, login or root need somebody.
    """
    import paramiko  # noqa: PLC0415 - half a second, and only this needs it

    transport = open_transport(login)
    try:
        channel = transport.open_session(timeout=HANDSHAKE_TIMEOUT_S, window_size=4 << 20)
        channel.settimeout(HANDSHAKE_TIMEOUT_S)
        channel.invoke_subsystem("sftp")
        name = root.encode("utf-8", "surrogateescape")
        return SftpSession(wire.Wire(channel), name, transport, make_root=make_root)
    except (paramiko.SSHException, EOFError, OSError, wire.WireError) as error:
        transport.close()
        raise LinkError(
            "start sftp",
            b"",
            str(error) or type(error).__name__,
            "does sshd_config have a Subsystem sftp line?",
        ) from error
    except NoRootError as error:
        transport.close()
        error.hint += f", or have it made: {login.trust_command}"
        raise
    except BaseException:
        transport.close()
        raise


class SftpSession(SftpCore):
    """A `target.Session` over one SFTP channel."""

    @property
    def append_limit_bytes(self) -> int:
        """32 KiB is what every server writes as one; less where the link is slow, for each is awaited."""
        return min(wire.SAFE_WRITE_BYTES, self._wire.chunk_bytes())

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `Session`."""
        results: list[RemoteStat | Exception | None] = [None] * len(files)
        left = self._link_many(files)
        handles = self._open_many(files, results, left)
        self._write_many(files, results, handles, left)
        for number, file in enumerate(files):
            if results[number] is None and not file.unchanged():
                results[number] = SourceChangedError(file.path)
        self._rename_many(files, results, left)
        failed = [number for number in (*handles, *left) if isinstance(results[number], Exception)]
        self._calls([wire.path_request(wire.REMOVE, self._full(files[number].temp)) for number in failed])
        return [
            result if result is not None else TransientError("send", b"", "no result") for result in results
        ]

    def put_own(self, file: SmallFile) -> RemoteStat:
        """See `Session`."""
        return replace_own(self, file)

    def _link_many(self, files: Sequence[SmallFile]) -> dict[int, RemoteStat]:
        """Make temp names links of their twins; those that are none of it are written."""
        wanted = [
            (number, file.temp, file.twin)
            for number, file in enumerate(files)
            if file.twin is not None and HARDLINK in self.extensions
        ]
        requests = []
        for _, temp, twin in wanted:
            requests.append(wire.extended_request(HARDLINK, self._full(twin.path), self._full(temp)))
            requests.append(self._lstat(temp))
        replies = iter(self._calls(requests))
        linked = {}
        for (number, temp, twin), made, look in zip(wanted, replies, replies, strict=True):
            if made.status != wire.OK or look.kind != wire.ATTRS:
                continue
            found = remote_stat(look.attributes)
            if same(found, twin.left) and files[number].mode == (found.mode or 0) & 0o777:
                linked[number] = found
            else:
                self.remove(temp)
        return linked

    def _open_many(
        self,
        files: Sequence[SmallFile],
        results: list[RemoteStat | Exception | None],
        linked: dict[int, RemoteStat],
    ) -> dict[int, bytes]:
        looks = [self._submit(self._lstat(file.path)) for file in files]
        opens = {
            number: self._submit(wire.open_request(self._full(file.temp), _NEW, file.mode | 0o600))
            for number, file in enumerate(files)
            if number not in linked
        }
        handles = {}
        for number, file in enumerate(files):
            results[number] = self._conflict(self._wait(looks[number]), file.path, file.expect)
            if number not in opens:
                continue
            opened = self._wait(opens[number])
            results[number] = results[number] or self._problem(opened, "create", file.temp)
            if opened.kind == wire.HANDLE:
                handles[number] = opened.handle
        return handles

    def _write_many(
        self,
        files: Sequence[SmallFile],
        results: list[RemoteStat | Exception | None],
        handles: dict[int, bytes],
        left: dict[int, RemoteStat],
    ) -> None:
        """Write and close; `left` gets the state of those whose time could not be set."""
        plan: list[tuple[int, str]] = []
        pending: list[int] = []
        for number, handle in handles.items():
            data = memoryview(files[number].data) if results[number] is None else memoryview(b"")
            at = 0
            while at < len(data):
                piece = data[at : at + self._wire.chunk_bytes()]
                pending.append(self._submit(wire.write_request(handle, at, piece)))
                plan.append((number, "write"))
                at += len(piece)
            pending.append(self._submit(self._finish(handle, files[number])))
            pending.append(self._submit(wire.close_request(handle)))
            plan += [(number, _FINISH), (number, "close")]
        refused = {}
        for request, (number, operation) in zip(pending, plan, strict=True):
            reply = self._wait(request)
            if operation == _FINISH and reply.status != wire.OK:
                refused[number] = reply
            elif results[number] is None:
                results[number] = self._problem(reply, operation, files[number].path)
        for number, reply in refused.items():
            if results[number] is None:
                found = self._settle_for(files[number], reply)
                if isinstance(found, RemoteStat):
                    left[number] = found
                else:
                    results[number] = found

    def _finish(self, handle: bytes, file: SmallFile | Upload) -> bytes:
        mode = file.mode if self._keeps_modes else None
        return wire.setstat(wire.FSETSTAT, handle, mode=mode, mtime_s=file.mtime_s)

    def _settle_for(self, file: SmallFile | Upload, refused: wire.Reply) -> RemoteStat | TargetError:
        """Where the server sets no permissions, or no time either: the temp file as it was made."""
        time_alone = wire.setstat(wire.SETSTAT, self._full(file.temp), mtime_s=file.mtime_s)
        _, look = self._calls([time_alone, self._lstat(file.temp)])
        problem = self._problem(look, "look at", file.temp)
        if problem is not None:
            return problem
        self._keeps_modes = False
        self._warn_of_modes(refused)
        return remote_stat(look.attributes)

    def _rename_many(
        self,
        files: Sequence[SmallFile],
        results: list[RemoteStat | Exception | None],
        left: dict[int, RemoteStat],
    ) -> None:
        ready = [number for number, result in enumerate(results) if result is None]
        done = {
            number: left.get(number) or RemoteStat(len(files[number].data), files[number].mtime_s)
            for number in ready
        }
        if not self._posix_rename:
            for number in ready:
                results[number] = self._rename_plain(files[number]) or done[number]
            return
        replies = self._calls(
            [self._rename_request(files[number].temp, files[number].path) for number in ready]
        )
        for number, reply in zip(ready, replies, strict=True):
            results[number] = self._problem(reply, "rename", files[number].path) or done[number]

    def _rename_plain(self, file: SmallFile) -> TargetError | None:
        try:
            self.rename(file.temp, file.path)
        except TargetError as error:
            return error
        return None

    def upload(self, job: Upload) -> RemoteStat:
        """See `Session`."""
        look = self._call(self._lstat(job.path))
        problem = self._conflict(look, job.path, job.expect)
        if problem is not None:
            raise problem
        flags = _NEW if job.start == 0 else wire.WRITE_FLAG
        opened = self._ask(
            wire.open_request(self._full(job.temp), flags, job.mode | 0o600), "create", job.temp
        )
        handle = opened.handle
        if job.start and self._keeps_modes:  # an earlier release left it open to others, perhaps
            self._call(wire.setstat(wire.FSETSTAT, handle, mode=job.mode | 0o600))
        self._send_body(job, handle)
        self._check_size(job, handle)
        finished, closed = self._calls([self._finish(handle, job), wire.close_request(handle)])
        self._check(closed, "close", job.path)
        left = RemoteStat(job.size, job.mtime_s)
        if finished.status != wire.OK:
            settled = self._settle_for(job, finished)
            if isinstance(settled, TargetError):
                raise settled
            left = settled
        if not job.unchanged():
            self.remove(job.temp)
            raise SourceChangedError(job.path)
        self.rename(job.temp, job.path)
        return left

    def _send_body(self, job: Upload, handle: bytes) -> None:
        waiting: deque[tuple[int, int]] = deque()
        at = job.start
        while at < job.size:
            try:
                data = job.read(at, min(self._wire.chunk_bytes(), job.size - at))
            except UnreadableError:
                self._abandon(waiting, handle, job.temp)
                raise
            if not data:
                self._abandon(waiting, handle, job.temp)
                raise SourceChangedError(job.path)
            waiting.append((self._submit(wire.write_request(handle, at, data)), at + len(data)))
            at += len(data)
            while waiting and self._wire.answered(waiting[0][0]):
                self._confirm(job, waiting)
        while waiting:
            self._confirm(job, waiting)

    def _confirm(self, job: Upload, waiting: deque[tuple[int, int]]) -> None:
        request, end = waiting.popleft()
        self._check(self._wait(request), "write", job.path)
        job.progress(end)

    def _abandon(self, waiting: deque[tuple[int, int]], handle: bytes, temp: bytes) -> None:
        while waiting:
            self._wait(waiting.popleft()[0])
        self._call(wire.close_request(handle))
        self.remove(temp)

    def _check_size(self, job: Upload, handle: bytes) -> None:
        size = self._ask(wire.path_request(wire.FSTAT, handle), "look at", job.temp).attributes.size
        if size != job.size:
            self._call(wire.close_request(handle))
            self.remove(job.temp)
            raise TransientError("send", job.path, f"the master holds {size} bytes of {job.size}")

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `Session`.

        On a disk without room nothing is begun: half a row would be there until it is cut off again.
        """
        whole = list(pieces)
        asked = self._ask_free()
        opened = self._call(wire.open_request(self._full(path), wire.WRITE_FLAG))
        free = self._answer_free(asked)
        self._check(opened, "open", path)
        handle = opened.handle
        try:
            check_room(path, free, sum(len(piece) for piece in whole))
            return self._append(path, handle, offset, whole, expect)
        finally:
            self._submit(wire.close_request(handle))
            self._drain()

    def _append(
        self, path: bytes, handle: bytes, offset: int, pieces: list[bytes], expect: RemoteStat
    ) -> RemoteStat:
        found = self._handle_stat(handle, path)
        end = offset + sum(len(piece) for piece in pieces)
        check_append(path, found, offset, end, expect)
        at = offset
        limit = self._wire.write_bytes
        fitting = [piece[start : start + limit] for piece in pieces for start in range(0, len(piece), limit)]
        for piece in fitting:
            reply = self._call(wire.write_request(handle, at, piece))
            if reply.status != wire.OK:
                self._call(wire.fsetstat_size(handle, at))  # a torn piece must not stay
                self._check(reply, "append to", path)
            at += len(piece)
        return self._handle_stat(handle, path)

    def extend(
        self, path: bytes, temp: bytes, offset: int, data: bytes, expect: RemoteStat
    ) -> RemoteStat | None:
        """See `Session`: the server copies what it has, the rest is sent, then the rename."""
        if COPY_DATA not in self.extensions or not self._posix_rename or offset == 0:
            return None
        look = self._ask(self._lstat(path), "look at", path)
        found = remote_stat(look.attributes)
        if found.size != offset or not same(found, expect):
            return None  # `append` judges it
        source = self._ask(wire.open_request(self._full(path), wire.READ_FLAG), "open", path)
        mode = (found.mode or 0) & 0o777 | 0o600
        target = self._ask(wire.open_request(self._full(temp), _NEW, mode), "create", temp)
        copied = self._call(wire.copy_request(source.handle, offset, target.handle))
        if copied.status != wire.OK:
            for handle in (source.handle, target.handle):
                self._call(wire.close_request(handle))
            self.remove(temp)
            return None
        pending = []
        at = 0
        while at < len(data):
            piece = memoryview(data)[at : at + self._wire.chunk_bytes()]
            pending.append(self._submit(wire.write_request(target.handle, offset + at, piece)))
            at += len(piece)
        for reply in [self._wait(request) for request in pending]:
            self._check(reply, "write", path)
        if found.mode is not None and self._keeps_modes:
            self._call(wire.setstat(wire.FSETSTAT, target.handle, mode=found.mode & 0o777))
        state = self._handle_stat(target.handle, temp)
        for handle in (source.handle, target.handle):
            self._ask(wire.close_request(handle), "close", path)
        if state.size != offset + len(data):
            raise TransientError("send", path, f"the master holds {state.size} bytes of {offset + len(data)}")
        self.rename(temp, path)
        return state

    def _handle_stat(self, handle: bytes, path: bytes) -> RemoteStat:
        reply = self._ask(wire.path_request(wire.FSTAT, handle), "look at", path)
        return remote_stat(reply.attributes)


@dataclass(frozen=True, slots=True)
class Trusted:
    """What came of it. `ready`: the test file went through; `known`: the key is; `say`: for the user."""

    ready: bool
    say: tuple[str, ...]
    known: bool = True


def trust(login: Login, root: str, private: Path, accept: Callable[[str], bool]) -> Trusted:
    """Get a master ready.

    Args:
        login: where and as whom.
        root: remote root; empty skips the test file.
        private: `<state>/replicate`.
        accept: shown a question: True pins the key with that fingerprint, makes that remote root.

    Raises:
        TargetError: the master cannot be reached, or refuses the test file.
    """
    key_type, key = server_key(login)
    say = [f"{login.known_as} shows {fingerprint(key)} ({key_type})"]
    problem = host_key_problem(login, key_type, key)
    if problem is not None:
        if "is not known" not in problem.why:
            return Trusted(ready=False, say=(*say, problem.why, problem.hint), known=False)
        if not accept(f"Is this the master's key ({fingerprint(key)})? "):
            return Trusted(ready=False, say=(*say, "not trusted; nothing was written"), known=False)
        pin(private, login, key_type, key)
        say.append(f"pinned in {private / OWN_KNOWN_HOSTS}")
    try:
        session = open_sftp(login, root or ".")
    except LoginError:
        line = own_key(private)
        say += ["the master lets none of our keys in; add this line to its ~/.ssh/authorized_keys:", line]
        return Trusted(ready=False, say=(*say, "then run the same command again"))
    except NoRootError as error:
        if not accept(f"The master has no folder {root}. Create it?"):
            return Trusted(ready=False, say=(*say, error.why, error.hint))
        session = open_sftp(login, root, make_root=True)
        say.append(f"made {root}")
    try:
        say += try_out(session) if root else []
    finally:
        session.close()
    return Trusted(ready=True, say=(*say, f"{login.user}@{login.known_as} is ready"))


def try_out(session: Session) -> list[str]:
    """Write, rename and delete a test file; lines that say so, a second one where its permissions are lost.

    Raises:
        TargetError: the master refuses it.
    """
    name = b".rla-tmp-trust-" + secrets.token_hex(6).encode()
    temp = name + b".new"
    file = SmallFile(name, temp, b"test\n", 1_000_000_000, None, lambda: True, mode=_TRIED_MODE)
    (result,) = session.put_many([file])
    if not isinstance(result, RemoteStat):
        raise result if isinstance(result, TargetError) else TransientError("try", name, str(result))
    made = session.stat(name)
    session.remove(name)
    free = session.free_bytes()
    room = f", {free >> 30} GiB free" if free is not None else ""
    lines = [f"a test file was written, renamed and deleted{room}"]
    if made is not None and made.mode is not None and made.mode & 0o777 != _TRIED_MODE:
        lines.append(f"permissions are not kept there: {_TRIED_MODE:o} became {made.mode & 0o777:o}")
    return lines
