"""Trust check of paths against other users.

A path is trusted when nobody but root or the caller can make it lead elsewhere. From / on, links included,
each component must belong to root or to the caller, and nobody else may write to a folder on the way unless
it is sticky. That excludes write access of the world and of groups, except root's or the caller's private
group, which has no other members and is in no ACL. In a user namespace that does not map all users the
overflow uid counts as root for folders above ours. A program, or a file that names one (`file_problem`), must
not be writable by others either. The folder that we use (`make_private`) must be ours, no link, and 0700.

Each component is opened relative to the descriptor of the one above and checked by fstat, so the verdict is
about the opened folder, whatever is renamed meanwhile.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from rla_client.contract.errors import PlaceError

OVERFLOW_UID = 65534  # of all users that a user namespace does not map
MAX_LINKS = 40  # in one path, as the kernel has it
_WAY_OUT = "use a folder whose path only you and root can change"
_O_PATH = getattr(os, "O_PATH", 0)  # ACLs are checked on Linux alone, where the agent runs
_ENTRY = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class TrustedWalk:
    """A path, walked from / with each component checked; `descriptor` and `where` are the reached folder."""

    def __init__(self, path: Path) -> None:
        """Walk as far as `path` exists; `missing` are the names that do not.

        Raises:
            PlaceError: somebody else can make the path lead elsewhere.
            OSError: a component cannot be examined.
        """
        with suppress(OSError):
            os.stat(path)  # triggers an automount on the way, which O_PATH would not
        self.descriptor = os.open("/", _ENTRY)
        self.found = os.fstat(self.descriptor)
        self.where = "/"
        self.missing = list(reversed(path.parts[1:]))
        self._links = 0
        try:
            self.go_on()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def go_on(self) -> None:
        """Walk to the end or to a name that does not exist."""
        while self.missing:
            if not self.found.st_mode & stat.S_ISVTX:  # in such a folder nobody else may replace entries
                _check_writers(self.descriptor, self.found, self.where)
            try:
                below = os.open(self.missing[-1], _ENTRY, dir_fd=self.descriptor)
            except FileNotFoundError:
                return
            try:
                self._step(below, self.missing.pop())
            finally:
                os.close(below)

    def make_rest(self) -> None:
        """Make the missing folders, and walk into them."""
        while self.missing:
            with suppress(FileExistsError):
                os.mkdir(self.missing[-1], 0o700, dir_fd=self.descriptor)
            self.go_on()

    def _step(self, below: int, name: str) -> None:
        found = os.fstat(below)
        where = os.path.normpath(os.path.join(self.where, name))
        if not _is_trusted(found.st_uid):
            raise _belongs_to_somebody_else(where, found.st_uid)
        if not stat.S_ISLNK(found.st_mode):
            self._move(os.dup(below), found, where)
            return
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), where)
        target = Path(os.readlink("", dir_fd=below))
        names = target.parts
        if target.is_absolute():
            root = os.open("/", _ENTRY)
            self._move(root, os.fstat(root), "/")
            names = names[1:]
        self.missing.extend(reversed(names))

    def _move(self, descriptor: int, found: os.stat_result, where: str) -> None:
        os.close(self.descriptor)
        self.descriptor, self.found, self.where = descriptor, found, where


def _is_trusted(uid: int) -> bool:
    return uid in {0, os.geteuid()} or (uid == OVERFLOW_UID and _maps_not_everybody())


@cache
def _maps_not_everybody() -> bool:
    """Whether this is a user namespace in which root's files may appear unowned."""
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return False
    return mapped != ["0", "0", "4294967295"]


def _belongs_to_somebody_else(where: str, uid: int) -> PlaceError:
    who = " (nobody, or a user whom this container does not map)" if uid == OVERFLOW_UID else ""
    message = f"{where} belongs to uid {uid}{who}, not to you (uid {os.geteuid()})"
    return PlaceError(message, _WAY_OUT)


def _check_writers(descriptor: int, found: os.stat_result, where: str) -> None:
    """Check that nobody else may write to this folder or file.

    Raises:
        PlaceError: somebody may.
    """
    by_others = bool(found.st_mode & 0o002)
    by_group = bool(found.st_mode & 0o020) and not (
        _is_private_group(found.st_gid, os.geteuid()) and not _has_acl(descriptor)
    )
    if by_others or by_group:
        who = "everybody" if by_others else f"the group {_group_name(found.st_gid)}"
        mine = found.st_uid == os.geteuid()
        bits = "o-w" if not by_group else "go-w" if by_others else "g-w"
        raise PlaceError(
            f"{where} can be written by {who}",
            f"run: chmod {bits} {where}" if mine else f"{_WAY_OUT}, or as root: chmod {bits} {where}",
        )


@cache
def _is_private_group(gid: int, uid: int) -> bool:
    try:
        name, primary = pwd.getpwuid(uid).pw_name, pwd.getpwuid(uid).pw_gid
    except KeyError:  # a container without an entry for this user
        name, primary = "", os.getegid()
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid == 0 or gid == primary == uid
    if set(group.gr_mem) - {"root", name}:
        return False
    return gid == 0 or (gid == primary and (group.gr_name == name or gid == uid))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _has_acl(descriptor: int) -> bool:
    """Whether an ACL names further users or groups; the bits of the group are its mask then."""
    with suppress(OSError):
        return "system.posix_acl_access" in os.listxattr(f"/proc/self/fd/{descriptor}")
    return False


def make_private(folder: Path) -> None:
    """Create `folder` (0700) if need be and check that it is ours alone, and that its path is safe.

    Raises:
        PlaceError: it cannot be made, is a link, belongs to somebody else, others may enter, or somebody
            else can make its path lead elsewhere.
    """
    try:
        with closing(TrustedWalk(folder)) as walk:
            walk.make_rest()
            check_ours(walk, folder)
            if walk.found.st_mode & 0o077:
                os.chmod(walk.where, 0o700)
    except PlaceError:
        raise
    except OSError as error:
        raise PlaceError(f"cannot make the folder {folder}: {error.strerror or error}", _WAY_OUT) from error


def folder_problem(folder: Path) -> PlaceError | None:
    """Why `make_private` would refuse a folder, None where it would not. Changes nothing.

    None also where no agent runs, but on Linux: there only databases are read.
    """
    if not _O_PATH:
        return None
    try:
        with closing(TrustedWalk(folder)) as walk:
            if not walk.missing:
                check_ours(walk, folder)
            elif not os.access(walk.where, os.W_OK | os.X_OK):
                return PlaceError(f"{folder} cannot be made: {walk.where} is not a folder of yours", _WAY_OUT)
    except PlaceError as error:
        return error
    except OSError as error:
        return PlaceError(f"{folder}: {error.strerror or error}", _WAY_OUT)
    return None


def file_problem(file: str | os.PathLike[str]) -> PlaceError | None:
    """Why a file's content must not be run: it is missing, or somebody else can change or replace it."""
    path = Path(file)
    if not path.is_absolute():
        return PlaceError(f"{str(file)!r} is not an absolute path")
    try:
        with closing(TrustedWalk(path)) as walk:
            if walk.missing or not stat.S_ISREG(walk.found.st_mode):
                return PlaceError(f"there is no file {path}")
            _check_writers(walk.descriptor, walk.found, walk.where)
    except PlaceError as error:
        return error
    except (OSError, ValueError) as error:
        return PlaceError(f"{path}: {error}")
    return None


def program_problem(program: str | os.PathLike[str]) -> PlaceError | None:
    """Why a program must not be started for others: as `file_problem`, or it cannot be executed."""
    problem = file_problem(program)
    if problem is None and not os.access(program, os.X_OK):
        problem = PlaceError(f"{program} cannot be executed")
    return problem


def check_ours(walk: TrustedWalk, folder: Path) -> None:
    """Check that the folder at the end of a walk is ours and no link.

    Raises:
        PlaceError: it is not.
    """
    if folder.is_symlink() or not stat.S_ISDIR(walk.found.st_mode):
        raise PlaceError(f"{folder} is a link or a file, not a folder", f"run: rm {folder}")
    if walk.found.st_uid != os.geteuid():
        raise _belongs_to_somebody_else(walk.where, walk.found.st_uid)


def check_entries(folder: Path) -> None:
    """Check that nobody put anything into our folder while it was open to others.

    Raises:
        PlaceError: somebody did.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner not in {0, os.geteuid()}:
                raise PlaceError(f"{entry.path} belongs to uid {owner}", f"run: sudo rm -r {entry.path}")
