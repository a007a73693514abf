"""The folders of the agent's state and of its sockets, found alike by client and agent.

State: `RLA_STATE_DIR`, else the platform's state folder if it is on a local disk and safe, else
`/var/tmp/rla-agent-<uid>` (where somebody else took that name: `/var/tmp/rla-agent-<uid>-<random>`);
below it one folder per host and machine id, because homes are shared over NFS; a machine with a new host
name continues in the folder that bears its id. Runtime (sockets):
`RLA_RUNTIME_DIR`, else below `$XDG_RUNTIME_DIR/rla-agent` if that is ours, else below `/tmp/rla-agent-<uid>`,
a folder for each state folder, so that agents with different state (another `RLA_STATE_DIR`, or another home
of the same user) never meet on a socket. Both are 0700 and belong to the caller.

Rows need the state folder only. The agent serves in the first folder for sockets that can be had
(`Places.serving`) and names it in its lock file; clients follow that (`Places.sockets`).

What is safe. A path is safe when nobody but root and the caller can make it lead elsewhere. From / on,
links included:

- Each component belongs to root or to the caller.
- Nobody else may write to a folder on the way, unless it is sticky: there only the owner of an entry
  can rename or delete it, and each entry on the way is root's or ours.
- "Nobody else": the world may not write, nor a group, unless it is root's (0) or the caller's private
  one (his primary group, of his name or number), which lists no other members and stands in no ACL.
- In a user namespace that does not map everybody (Apptainer, rootless containers), root's folders look
  as if they belonged to the overflow uid. It counts as root for folders above ours.
- A program, or a file that names one (`file_problem`): the same, and nobody else may write to the file.
- The folder that we use (`make_private`): ours, no link, 0700.

Each component is opened relative to the descriptor of the one above and checked by fstat, so whatever is
renamed meanwhile, the verdict is about the folder that was opened. A path that was found safe stays so.
"""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rla_client.contract.errors import PlaceError

STATE_VARIABLE = "RLA_STATE_DIR"
RUNTIME_VARIABLE = "RLA_RUNTIME_DIR"
MAX_SOCKET_PATH_BYTES = 107  # sun_path, less the closing NUL
NO_HOME = Path("/nonexistent")  # what passwd says of users without a home
NOWHERE = Path("/dev/null")  # a folder of sockets that nobody can make
OVERFLOW_UID = 65534  # of everybody whom a user namespace does not map
MAX_LINKS = 40  # in one path, as the kernel has it
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # short, local, writable nearly everywhere
_NO_MACHINE_ID = {"", "uninitialized"}  # of images before their first boot, and of most containers
_WAY_OUT = "use a folder whose path only you and root can change"
_O_PATH = getattr(os, "O_PATH", 0)  # none but on Linux, where alone an agent runs
_ENTRY = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x00C36400: "CephFS",
    0x65735546: "FUSE",
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where one agent and its clients meet."""

    state: Path
    runtime: Path

    @property
    def spool(self) -> Path:
        """One folder per stream."""
        return self.state / "spool"

    @property
    def lock(self) -> Path:
        """Held by the agent for life; its content names the holder."""
        return self.state / "agent.lock"

    @property
    def database(self) -> Path:
        """SQLite: positions, runs."""
        return self.state / "agent.db"

    @property
    def stopped_marker(self) -> Path:
        """Left by `rla-agent stop`; while it is there, clients start no agent."""
        return self.state / "stopped"

    @property
    def stopped(self) -> bool:
        """Whether that marker is there; True, too, where the folder is closed to this process."""
        try:
            os.stat(self.stopped_marker)
        except OSError as error:
            return not isinstance(error, FileNotFoundError)
        return True

    @property
    def log(self) -> Path:
        """The agent's own log."""
        return self.state / "agent.log"

    @property
    def sockets(self) -> Path:
        """Folder of the sockets: the one that the lock file's holder named, else `runtime`.

        A service, a login session and a batch job see different XDG_RUNTIME_DIRs, but the same state.
        NOWHERE where neither is private and ours: somebody else could listen there.
        """
        try:
            told = json.loads(self.lock.read_text(encoding="utf-8"))["runtime"]
        except (OSError, ValueError, KeyError, TypeError):
            told = None
        named = [Path(told)] if isinstance(told, str) and os.path.isabs(told) else []
        return next((folder for folder in (*named, self.runtime) if _serves(folder)), NOWHERE)

    @property
    def data_socket(self) -> Path:
        """ROUTER for segment bytes and flush requests."""
        return self.sockets / "data.sock"

    @property
    def control_socket(self) -> Path:
        """ROUTER for status and commands."""
        return self.sockets / "control.sock"

    def create(self) -> None:
        """Make what rows need and check it; also the folder of the sockets, where that is possible.

        Raises:
            PlaceError: the state folder or the spool cannot be made, belongs to somebody else, somebody
                else can change their path, or they lie on a network file system.
        """
        for folder in (self.state, self.spool):
            make_private(folder)
        kind = network_file_system(self.state)
        if kind is not None and kind != "FUSE":
            raise PlaceError(
                f"the state folder {self.state} is on {kind}, where file locks cannot be trusted",
                f"set {STATE_VARIABLE} to a folder on a local disk",
            )
        with suppress(PlaceError):
            make_private(self.runtime)

    def serving(self) -> tuple[Places, str]:
        """These places with a folder in which sockets can be bound, for the agent; made and tried.

        That is `runtime`; where it cannot be had, `sockets` in the state folder; where that path is too
        long, a folder of ours in one that everybody may write to; NOWHERE at last: the agent then takes
        rows in by looking at the spool, and answers nobody.

        Returns:
            The places, and why they are not these; empty if they are.

        Raises:
            PlaceError: something in the state folder belongs to somebody else.
        """
        check_entries(self.state)
        why = ""
        for folder in self._folders_for_sockets():
            try:
                if folder.parent.name.startswith("rla-agent"):
                    make_private(folder.parent)  # an earlier release left it as the umask had it
                make_private(folder)
                _try_socket(folder)
            except PlaceError as error:
                why = why or str(error)
            else:
                return Places(self.state, folder), why
        return Places(self.state, NOWHERE), why

    def _folders_for_sockets(self) -> Iterator[Path]:
        yield self.runtime
        yield self.state / "sockets"
        for shared in SHARED_FOLDERS:
            yield _below_shared(shared) / _digest(self.state)


def find_places() -> Places:
    """Places for this process's environment. Creates nothing."""
    state_variable = os.environ.get(STATE_VARIABLE)
    runtime_variable = os.environ.get(RUNTIME_VARIABLE)
    state = Path(state_variable).absolute() if state_variable else _default_state()
    if runtime_variable:
        return Places(state, Path(runtime_variable).absolute())
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    runtime = Path(base, "rla-agent")
    if not os.path.isabs(base) or not os.path.isdir(base) or folder_problem(runtime) is not None:
        runtime = _usual_below("/tmp")
    return Places(state, runtime / _digest(state))


def _digest(path: str | Path) -> str:
    import hashlib  # noqa: PLC0415 - not at import of the package

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def why_elsewhere() -> PlaceError | None:
    """Why the state lies in no usual place; None where it does, or where a variable names one."""
    if STATE_VARIABLE in os.environ:
        return None
    state = _state_in_home()
    return folder_problem(state if network_file_system(state) is None else _usual_below("/var/tmp"))


def _default_state() -> Path:
    state = _state_in_home()
    if network_file_system(state) is None and folder_problem(state) is None:
        return _of_this_machine(state)
    return _of_this_machine(_below_shared("/var/tmp") / machine_key())


def _state_in_home() -> Path:
    import platformdirs  # noqa: PLC0415 - only when no variable says where

    try:
        return Path(platformdirs.user_state_dir("rla-agent"), machine_key())
    except RuntimeError:
        return _usual_below("/var/tmp") / machine_key()


def user_home() -> Path:
    """The user's home, or a name that leads nowhere: a container's uid may have none, and no HOME."""
    try:
        return Path.home()
    except RuntimeError:
        return NO_HOME


def user_name() -> str:
    """The user's name in the environment or in passwd; empty where neither has one, as in some containers."""
    import getpass  # noqa: PLC0415 - not at import of the package

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _below_shared(shared: str) -> Path:
    """A folder of ours in one that everybody may write to: found, or a name for it that is free.

    Whoever takes our usual name only has us use one that cannot be guessed; it is found again by its
    beginning and its owner.
    """
    usual = _usual_below(shared)
    if folder_problem(usual) is None:
        return usual
    found = sorted(Path(shared).glob(f"{usual.name}-*")) if os.path.isdir(shared) else []
    ours = (folder for folder in found if folder_problem(folder) is None)
    return next(ours, usual.with_name(f"{usual.name}-{os.urandom(8).hex()}"))


def _usual_below(shared: str) -> Path:
    return Path(shared, f"rla-agent-{os.geteuid()}")


# -- what is safe -------------------------------------------------------------------------------


class _Walk:
    """A path, walked from / with each component checked; `descriptor` and `where` are how far it came."""

    def __init__(self, path: Path) -> None:
        """Walk as far as `path` exists; `missing` are the names that do not.

        Raises:
            PlaceError: somebody else can make the path lead elsewhere.
            OSError: a component cannot be looked at.
        """
        with suppress(OSError):
            os.stat(path)  # has the automounter mount what lies on the way: O_PATH would not
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
        """Let go of the descriptor."""
        os.close(self.descriptor)

    def go_on(self) -> None:
        """Walk on until the end or a name that does not exist."""
        while self.missing:
            if not self.found.st_mode & stat.S_ISVTX:  # there nobody else may exchange what lies in it
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
        """Make the folders that are missing, and walk into them."""
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
    """Whether this is a user namespace in which root's files may look as if nobody owned them."""
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
    """Nobody else may write to this folder or file.

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
        with closing(_Walk(folder)) as walk:
            walk.make_rest()
            _check_ours(walk, folder)
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
        with closing(_Walk(folder)) as walk:
            if not walk.missing:
                _check_ours(walk, folder)
            elif not os.access(walk.where, os.W_OK | os.X_OK):
                return PlaceError(f"{folder} cannot be made: {walk.where} is not a folder of yours", _WAY_OUT)
    except PlaceError as error:
        return error
    except OSError as error:
        return PlaceError(f"{folder}: {error.strerror or error}", _WAY_OUT)
    return None


def file_problem(file: str | os.PathLike[str]) -> PlaceError | None:
    """Why what a file says must not be run: it is not there, or somebody else can change or exchange it."""
    path = Path(file)
    if not path.is_absolute():
        return PlaceError(f"{str(file)!r} is not an absolute path")
    try:
        with closing(_Walk(path)) as walk:
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


def _check_ours(walk: _Walk, folder: Path) -> None:
    """The folder at the end of a walk is ours and no link.

    Raises:
        PlaceError: it is not.
    """
    if folder.is_symlink() or not stat.S_ISDIR(walk.found.st_mode):
        raise PlaceError(f"{folder} is a link or a file, not a folder", f"run: rm {folder}")
    if walk.found.st_uid != os.geteuid():
        raise _belongs_to_somebody_else(walk.where, walk.found.st_uid)


def check_entries(folder: Path) -> None:
    """Nobody put anything into our folder while it was open to others.

    Raises:
        PlaceError: somebody did.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner not in {0, os.geteuid()}:
                raise PlaceError(f"{entry.path} belongs to uid {owner}", f"run: sudo rm -r {entry.path}")


def _serves(folder: Path) -> bool:
    """Whether sockets in `folder` can only be those of our agent, and can be connected to."""
    if len(os.fsencode(folder / "control.sock")) > MAX_SOCKET_PATH_BYTES:
        return False
    try:
        with closing(_Walk(folder)) as walk:
            _check_ours(walk, folder)
            return not walk.missing and not walk.found.st_mode & 0o077
    except OSError:
        return False


def _try_socket(folder: Path) -> None:
    """Bind a socket in `folder` and remove it.

    Raises:
        PlaceError: the path is too long, or the file system takes none (read-only, full, not able to).
    """
    import socket  # noqa: PLC0415 - the agent's

    longest = folder / "control.sock"
    if len(os.fsencode(longest)) > MAX_SOCKET_PATH_BYTES:
        message = f"the socket path {longest} is too long (limit {MAX_SOCKET_PATH_BYTES} bytes)"
        raise PlaceError(message, f"set {RUNTIME_VARIABLE} to a shorter folder")
    path = folder / f"try-{os.urandom(4).hex()}"  # as long as the longest that is served
    try:
        with closing(socket.socket(socket.AF_UNIX)) as trial:
            trial.bind(os.fspath(path))
            path.unlink()
    except OSError as error:
        message = f"no socket can be made in {folder}: {error.strerror or error}"
        raise PlaceError(message, f"set {RUNTIME_VARIABLE} to another folder") from error


def network_file_system(path: Path) -> str | None:
    """Name of the network file system that `path` lies on, None for a local one."""
    return NETWORK_FILE_SYSTEMS.get(file_system_type(path))


def file_system_type(path: Path) -> int:
    """Magic number of the file system that `path`, or the nearest folder above it that exists, lies on."""
    import ctypes  # noqa: PLC0415 - not at import of the package

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(256)
    probe = path
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    if libc.statfs(os.fsencode(probe), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


@cache
def machine_key() -> str:
    """Host name and a hash of the machine id: one folder per machine on a shared home."""
    return f"{(os.uname().nodename or 'nohost')[:48]}-{_digest(_machine_id())[:8]}"


@cache
def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _of_this_machine(state: Path) -> Path:
    """A default state folder; where there is none, that of this machine under an earlier host name."""
    if state.exists():
        return state
    return next((other for other in other_states(state) if is_of_this_machine(other)), state)


def other_states(state: Path) -> list[Path]:
    """This user's state folders with a spool beside a default one: of other host names and machine ids."""
    if state.name != machine_key():
        return []
    found = [spool.parent for spool in state.parent.glob("*/spool") if spool.is_dir()]
    return sorted(folder for folder in found if folder != state and folder_problem(folder) is None)


def is_of_this_machine(state: Path) -> bool:
    """Whether a default state folder was made on this machine, whatever its host name was.

    Only the machine id tells that; without one it is none. Machines that share a home have different ids.
    Containers that share a home on a local disk and, against the rules, an id, share the folder.
    """
    return _machine_id() not in _NO_MACHINE_ID and state.name.endswith(machine_key()[-9:])
