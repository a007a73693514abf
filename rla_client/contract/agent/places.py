"""Folders of an agent.

State: `RLA_STATE_DIR`, else the platform's state folder if it is on a local disk and safe, else
`/var/tmp/rla-agent-<uid>` (with a random ending where somebody else took that name); below it one folder
per host and machine id, because homes are shared over NFS; a machine with a new host name continues in the
folder that bears its id. Sockets: `RLA_RUNTIME_DIR`, else below `$XDG_RUNTIME_DIR/rla-agent` if that is
ours, else below `/tmp/rla-agent-<uid>`, a folder for each state folder, so that agents with different state
never share a socket. Both are 0700 and belong to the caller.

Rows need the state folder only. The agent serves in the first usable folder for sockets that no other agent
has (`Places.serving`), and names it in its lock file; clients follow that (`Places.sockets`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem.file_systems import network_file_system
from rla_client.contract.filesystem.trusted_paths import (
    TrustedWalk,
    check_ours,
    folder_problem,
    make_private,
)

STATE_VARIABLE = "RLA_STATE_DIR"
RUNTIME_VARIABLE = "RLA_RUNTIME_DIR"
MAX_SOCKET_PATH_BYTES = 107  # sun_path, less the closing NUL
NOWHERE = Path("/dev/null")  # a folder of sockets that nobody can make
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # short, local, writable nearly everywhere
_NO_MACHINE_ID = {"", "uninitialized"}  # of images before their first boot, and of most containers


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that one agent and its clients share."""

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
        """Whether that marker exists; True, too, where the folder is inaccessible to this process."""
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

        A service, a login session and a batch job see different XDG_RUNTIME_DIRs, but the same state. NOWHERE
        where neither is private and ours (somebody else could listen there), and while the holder has not
        named one: another agent, with another state, may serve in `runtime`.
        """
        try:
            told = json.loads(self.lock.read_text(encoding="utf-8"))["runtime"]
        except (OSError, ValueError, KeyError, TypeError):
            told = None
        if told == "":
            return NOWHERE
        named = [Path(told)] if isinstance(told, str) and os.path.isabs(told) else []
        return next((folder for folder in (*named, self.runtime) if _serves(folder)), NOWHERE)

    @property
    def data_socket(self) -> Path:
        """ROUTER for hints and flush requests."""
        return self.sockets / "data.sock"

    @property
    def control_socket(self) -> Path:
        """ROUTER for status and commands."""
        return self.sockets / "control.sock"

    def create(self) -> None:
        """Make and check the folders that rows need, and the folder of the sockets where that is possible.

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

    def serving(self, claim: Callable[[Path], bool] = lambda _: True) -> tuple[Places, str]:
        """These places with a folder in which sockets can be bound, for the agent; made and tried.

        That is `runtime`; where it is unusable, `sockets` in the state folder; where that path is too long, a
        folder of ours in one that everybody may write to; NOWHERE at last: the agent then polls the spool,
        and answers no requests.

        Args:
            claim: makes a folder the caller's; False where it is another agent's, which has another state.

        Returns:
            The places, and why they are not these; empty if they are.
        """
        why = ""
        for folder in self._folders_for_sockets():
            try:
                make_private(folder)
                _try_socket(folder)
                if not claim(folder):
                    message = f"another agent serves in {folder}"
                    raise PlaceError(message, f"set {RUNTIME_VARIABLE} to a folder for this one")  # noqa: TRY301
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
    """Why the state is not in its default place; None where it is, or where a variable names one."""
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


def _below_shared(shared: str) -> Path:
    """A folder of ours in one that everybody may write to: an existing one, or a free name for it.

    If somebody else took the usual name, an unguessable one is used; it is recognized by its prefix and
    its owner.
    """
    usual = _usual_below(shared)
    if folder_problem(usual) is None:
        return usual
    found = sorted(Path(shared).glob(f"{usual.name}-*")) if os.path.isdir(shared) else []
    ours = (folder for folder in found if folder_problem(folder) is None)
    return next(ours, usual.with_name(f"{usual.name}-{os.urandom(8).hex()}"))


def _usual_below(shared: str) -> Path:
    return Path(shared, f"rla-agent-{os.geteuid()}")


def _serves(folder: Path) -> bool:
    """Whether sockets in `folder` can only be those of our agent, and can be connected to."""
    if len(os.fsencode(folder / "control.sock")) > MAX_SOCKET_PATH_BYTES:
        return False
    try:
        with closing(TrustedWalk(folder)) as walk:
            check_ours(walk, folder)
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

    Only the machine id decides; without one the answer is no. Machines that share a home have different ids.
    Containers that share a home on a local disk and, against the rules, an id, share the folder.
    """
    return _machine_id() not in _NO_MACHINE_ID and state.name.endswith(machine_key()[-9:])
