"""Target on an FTP server.

Everything is sent in the clear, so it is used only where `file_transfer_protocol: ftp` asks for it. Plain RFC
959 with SIZE and MDTM (MFMT where the server has it), passive mode, one connection. Weaker than
SFTP in four ways: an interrupted append may end within a row until the next attempt, which continues from the
size that the server reports; modification times are the server's where MFMT is missing; free space is
unknown. Permissions are set by SITE CHMOD where the server has it, before the content where others could
read it otherwise; else the server decides, and a warning says so. The server reports none, so fetched files
are for their owner alone. Names that FTP cannot carry (line breaks) are refused.
"""

from __future__ import annotations

import calendar
import ftplib
import io
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.append_check import check_append
from rla_agent.replicate.backend.continued_upload import continued
from rla_agent.replicate.backend.errors import (
    DeniedError,
    FullError,
    LinkError,
    LoginError,
    MissingError,
    NoRootError,
    SourceChangedError,
    TargetError,
    TransientError,
    UnreadableError,
)
from rla_agent.replicate.backend.one_by_one import OneByOne
from rla_agent.replicate.backend.password import read_password
from rla_agent.replicate.backend.remote_modes import warn_of_modes
from rla_agent.replicate.backend.remote_paths import check_remote, parent
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload

if TYPE_CHECKING:
    from rla_client.config.schema import RemoteSetting


FTP_TIMEOUT_S: Final = 25.0
FTP_BLOCK_BYTES: Final = 64 << 10
_READABLE: Final = 0o044  # the usual permissions of new files on a server
_MDTM: Final = re.compile(r"213 (\d{14})")
_FULL: Final = re.compile(r"^(452|552)")
_ABSENT: Final = re.compile(r"^550")
log = logging.getLogger("rla_agent.replicate")


def open_ftp(remote: RemoteSetting) -> FtpSession:
    """Connect and log in.

    Raises:
        LinkError: the server cannot be reached now.
        LoginError: it refuses the user.
    """
    log.warning("FTP sends the password and all data in the clear; sftp needs nothing but sshd on the master")
    password = read_password(remote)
    link = ftplib.FTP(timeout=FTP_TIMEOUT_S, encoding="utf-8")  # noqa: S321 - the user asked for it
    try:
        link.connect(remote.ftp_server, remote.port or 21)
        link.login(remote.username or "anonymous", password)
    except ftplib.error_perm as error:
        link.close()
        raise LoginError(
            "log in", b"", f"{remote.ftp_server} refused us: {error}", "check REMOTE_SETTING"
        ) from error
    except (OSError, EOFError, ftplib.Error) as error:
        link.close()
        why = f"{remote.ftp_server}: {getattr(error, 'strerror', None) or error}"
        raise LinkError("connect", b"", why, "is the FTP server up?") from error
    return FtpSession(link, remote.remote_data_root)


class FtpSession(OneByOne):
    """A `session.Session` over one FTP connection."""

    def __init__(self, link: ftplib.FTP, root: str) -> None:
        self._ftp = link
        self._ftp.encoding = "utf-8"
        self._root = root.rstrip("/")
        self._mfmt = self._chmods = True
        self._ftp.voidcmd("TYPE I")
        if self._root and self.stat(b"") is None:
            what = f"the remote root {root} does not exist"
            raise NoRootError(
                "look at", b"", what, "mount its disk, correct remote_data_root, or make it on the master"
            )

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `TargetSession`."""
        full = self._full(path)
        with self._converted("look at", path):
            try:
                size = self._ftp.size(full)
                return RemoteStat(size or 0, self._mtime(full))
            except ftplib.error_perm as error:
                if not _ABSENT.match(str(error)):
                    raise
            return RemoteStat(0, 0, "folder") if self._is_folder(full) else None

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`."""
        if self.stat(path) is None:
            raise MissingError("list", path, "not there")
        with self._converted("list", path):
            names = self._names(self._full(path))
        found = []
        for name in names:
            state = self.stat(path + b"/" + name if path else name)
            if state is not None:
                found.append((name, state))
        return found

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `TargetSession`; changes nothing for `only_less`, as the present permissions are unknown."""
        for path, mode in () if only_less else wanted:
            self._chmod(path, mode)
        return [None] * len(wanted)

    def _chmod(self, path: bytes, mode: int) -> None:
        if not self._chmods:
            return
        with self._converted("set the permissions of", path):
            try:
                self._ftp.sendcmd(f"SITE CHMOD {mode:o} {self._full(path)}")
            except ftplib.error_perm as error:
                self._chmods = _ABSENT.match(str(error)) is not None  # 550: not this one; else: none
                warn_of_modes(f"the FTP server {self._ftp.host}", str(error))

    def _make_folder(self, folder: bytes, mode: int | None) -> bool:
        del mode  # MKD has none
        with self._converted("make folder", folder):
            try:
                self._ftp.mkd(self._full(folder))
            except ftplib.error_perm:
                if self.stat(folder) is None:
                    raise
                return False
        return True

    def _put(self, file: SmallFile) -> RemoteStat:
        folder = parent(file.path)
        if folder and self.stat(folder) is None:
            raise MissingError("create", file.temp, "the folder is not there")
        return super()._put(file)

    def upload(self, job: Upload) -> RemoteStat:
        """See `TargetSession`."""
        self._expect(job.path, job.expect)
        job = continued(job, self)
        with self._converted("send", job.path):
            self._store(job)
        there = self.stat(job.temp)
        if there is None or there.size != job.size or not job.unchanged():
            self.remove(job.temp)
            raise SourceChangedError(job.path)
        self._chmod(job.temp, job.mode)
        self._set_mtime(job.temp, job.mtime_s)
        self.rename(job.temp, job.path)
        after = self.stat(job.path)
        if after is None or after.size != job.size:
            raise TransientError("send", job.path, "the file is not there after its rename")
        return after

    def _store(self, job: Upload) -> None:
        if job.start or job.mode & _READABLE != _READABLE:
            if not job.start:
                self._ftp.storbinary(f"STOR {self._full(job.temp)}", io.BytesIO())
            self._chmod(job.temp, job.mode | 0o600)
        reader = _Reader(self, job)
        rest = job.start or None
        self._ftp.storbinary(f"STOR {self._full(job.temp)}", reader, FTP_BLOCK_BYTES, rest=rest)
        if reader.error is not None:
            self.remove(job.temp)
            raise reader.error

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `TargetSession`; continues from the size that the server reports."""
        data = b"".join(pieces)
        found = self.stat(path)
        if found is None:
            raise MissingError("append to", path, "not there")
        check_append(path, found, offset, offset + len(data), expect)
        rest = data[found.size - offset :]
        if rest:
            with self._converted("append to", path):
                self._ftp.storbinary(f"APPE {self._full(path)}", io.BytesIO(rest), FTP_BLOCK_BYTES)
            self.written_bytes += len(rest)
        return self.stat(path) or found

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `TargetSession`."""
        if self.stat(path) is None:
            raise MissingError("read", path, "not there")
        found = bytearray()
        with self._converted("read", path):
            data = self._ftp.transfercmd(f"RETR {self._full(path)}", rest=offset or None)
            with data:
                while len(found) < count and (more := data.recv(min(FTP_BLOCK_BYTES, count - len(found)))):
                    found += more
            with suppress(ftplib.error_temp):  # 426: we closed before the end
                self._ftp.voidresp()
        return bytes(found)

    def truncate(self, path: bytes, size: int) -> None:
        """See `TargetSession`: read and stored anew, since FTP has no other way."""
        data = self.read(path, 0, size)
        temp = path + b".cut"
        with self._converted("cut", path):
            self._ftp.storbinary(f"STOR {self._full(temp)}", io.BytesIO(data), FTP_BLOCK_BYTES)
        self.rename(temp, path)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `TargetSession`."""
        with self._converted("rename", new):
            try:
                self._ftp.rename(self._full(old), self._full(new))
            except ftplib.error_perm as error:
                if self.stat(old) is None:
                    raise MissingError("rename", new, "not there") from error
                if self.stat(new) is None:
                    raise
                self._ftp.delete(self._full(new))  # this server does not replace files
                self._ftp.rename(self._full(old), self._full(new))

    def remove(self, path: bytes) -> None:
        """See `TargetSession`."""
        self._take_away("remove", path, self._ftp.delete)

    def remove_folder(self, path: bytes) -> None:
        """See `TargetSession`."""
        self._take_away("remove folder", path, self._ftp.rmd)

    def _take_away(self, operation: str, path: bytes, do: Callable[[str], str]) -> None:
        with self._converted(operation, path):
            try:
                do(self._full(path))
            except ftplib.error_perm:
                if self.stat(path) is not None:
                    raise

    def close(self) -> None:
        """See `TargetSession`."""
        self._ftp.close()

    def _full(self, path: bytes) -> str:
        check_remote(path)
        if b"\r" in path or b"\n" in path:
            raise DeniedError("name", path, "FTP cannot carry line breaks in names", "rename the file")
        text = path.decode("utf-8", "surrogateescape")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DeniedError(
                "name", path, "FTP cannot carry names that are not UTF-8", "rename the file"
            ) from error
        prefix = f"{self._root}/" if self._root else "./"
        return prefix + text if text else self._root or "."

    def _names(self, full: str) -> list[bytes]:
        try:
            here = self._ftp.pwd()
            self._ftp.cwd(full)
            try:
                names = self._ftp.nlst()
            finally:
                self._ftp.cwd(here)
        except ftplib.error_perm as error:
            if _ABSENT.match(str(error)):
                return []
            raise
        short = [name.rpartition("/")[2] for name in names]
        return [name.encode("utf-8", "surrogateescape") for name in short if name not in {"", ".", ".."}]

    def _is_folder(self, full: str) -> bool:
        here = self._ftp.pwd()
        try:
            self._ftp.cwd(full)
        except ftplib.error_perm:
            return False
        self._ftp.cwd(here)
        return True

    def _mtime(self, full: str) -> int:
        try:
            match = _MDTM.match(self._ftp.sendcmd(f"MDTM {full}"))
        except ftplib.error_perm:
            return 0
        return calendar.timegm(time.strptime(match[1], "%Y%m%d%H%M%S")) if match else 0

    def _set_mtime(self, path: bytes, mtime_s: int) -> None:
        if not self._mfmt:
            return
        when = time.strftime("%Y%m%d%H%M%S", time.gmtime(mtime_s))
        try:
            self._ftp.sendcmd(f"MFMT {when} {self._full(path)}")
        except ftplib.error_perm:
            self._mfmt = False

    @contextmanager
    def _converted(self, operation: str, path: bytes) -> Iterator[None]:
        try:
            yield
        except ftplib.Error as error:
            words = str(error)
            if _FULL.match(words):
                raise FullError(operation, path, words, "free space on the master") from error
            if isinstance(error, ftplib.error_perm):
                raise DeniedError(operation, path, words, "give the folder to this user") from error
            raise TransientError(operation, path, words) from error
        except (OSError, EOFError) as error:
            raise LinkError(operation, path, str(error) or type(error).__name__) from error


class _Reader(io.RawIOBase):
    """Reader of an upload's blocks for ftplib.

    Where the source gives an error the bytes end early, because a transfer that was begun must be ended.
    """

    error: UnreadableError | None = None

    def __init__(self, session: FtpSession, job: Upload) -> None:
        super().__init__()
        self._session = session
        self._job = job
        self._at = job.start

    def read(self, size: int = -1, /) -> bytes:
        """The next block."""
        self._job.progress(self._at)
        count = min(size if size > 0 else FTP_BLOCK_BYTES, self._job.size - self._at)
        try:
            data = self._job.read(self._at, count) if count > 0 else b""
        except UnreadableError as error:
            self.error = error
            return b""
        self._at += len(data)
        self._session.written_bytes += len(data)
        return data
