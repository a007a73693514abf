"""The folders of the agent's state and of its sockets, found alike by client and agent.

State: `RLA_STATE_DIR`, else the platform's state folder if it is on a local disk, else
`/var/tmp/rla-agent-<uid>`; below it one folder per host and machine id, because homes are
shared over NFS. Runtime (sockets): `RLA_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/rla-agent`, else
`/tmp/rla-agent-<uid>`; with `RLA_STATE_DIR` set and no `RLA_RUNTIME_DIR`, a folder of its own
below that, so that agents with different state never meet on a socket. Both are 0700 and
belong to the caller.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rla_client.errors import PlaceError

STATE_VARIABLE = "RLA_STATE_DIR"
RUNTIME_VARIABLE = "RLA_RUNTIME_DIR"
MAX_SOCKET_PATH_BYTES = 107  # sun_path, less the closing NUL
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
    def log(self) -> Path:
        """The agent's own log."""
        return self.state / "agent.log"

    @property
    def sockets(self) -> Path:
        """Folder of the sockets: the one that the lock file's last holder named, else `runtime`.

        A service, a login session and a batch job see different XDG_RUNTIME_DIRs, but the same state.
        """
        try:
            told = json.loads(self.lock.read_text(encoding="utf-8"))["runtime"]
            found = os.lstat(told)
        except (OSError, ValueError, KeyError, TypeError):
            return self.runtime
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        return Path(told) if ours and os.path.isabs(told) else self.runtime

    @property
    def data_socket(self) -> Path:
        """ROUTER for segment bytes and flush requests."""
        return self.sockets / "data.sock"

    @property
    def control_socket(self) -> Path:
        """ROUTER for status and commands."""
        return self.sockets / "control.sock"

    def create(self) -> None:
        """Make the folders and check them.

        Raises:
            PlaceError: a folder cannot be made, belongs to somebody else or is open to others,
                the state lies on a network file system, or the socket path is too long.
        """
        if self.runtime.parent.name.startswith("rla-agent"):
            make_private(self.runtime.parent)  # in /tmp, somebody else could have made it first
        for folder in (self.state, self.spool, self.runtime):
            make_private(folder)
        kind = network_file_system(self.state)
        if kind is not None and kind != "FUSE":
            message = (
                f"the state folder {self.state} is on {kind}, where file locks cannot be trusted; "
                f"set {STATE_VARIABLE} to a folder on a local disk"
            )
            raise PlaceError(message)
        if len(os.fsencode(self.runtime / "control.sock")) > MAX_SOCKET_PATH_BYTES:
            message = (
                f"the socket path {self.runtime / 'control.sock'} is too long "
                f"(limit {MAX_SOCKET_PATH_BYTES} bytes); set {RUNTIME_VARIABLE} to a shorter folder"
            )
            raise PlaceError(message)


def find_places() -> Places:
    """Places for this process's environment. Creates nothing."""
    state_variable = os.environ.get(STATE_VARIABLE)
    runtime_variable = os.environ.get(RUNTIME_VARIABLE)
    state = Path(state_variable).absolute() if state_variable else _default_state()
    if runtime_variable:
        runtime = Path(runtime_variable).absolute()
    else:
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        usable = base != "" and os.path.isdir(base) and os.access(base, os.W_OK)
        runtime = Path(base, "rla-agent") if usable else Path(f"/tmp/rla-agent-{os.getuid()}")
        if state_variable:
            import hashlib  # noqa: PLC0415 - not at import of the package

            runtime = runtime / hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return Places(state, runtime)


def make_private(folder: Path) -> None:
    """Create `folder` (0700) if need be and check that it is ours alone.

    Raises:
        PlaceError: it cannot be made, is a link, belongs to somebody else, or others may enter.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        message = f"cannot make the folder {folder}: {error.strerror or error}"
        raise PlaceError(message) from error
    if not stat.S_ISDIR(found.st_mode):
        message = f"{folder} is a link or a file, not a folder"
        raise PlaceError(message)
    if found.st_uid != os.geteuid():
        message = f"{folder} belongs to uid {found.st_uid}, not to you (uid {os.geteuid()})"
        raise PlaceError(message)
    if found.st_mode & 0o077:
        try:
            folder.chmod(0o700)
        except OSError as error:
            message = f"{folder} is open to other users; run: chmod 700 {folder}"
            raise PlaceError(message) from error


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
    host = os.uname().nodename or "nohost"
    try:
        machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine_id = ""
    import hashlib  # noqa: PLC0415 - not at import of the package

    return f"{host[:48]}-{hashlib.sha256(machine_id.encode()).hexdigest()[:8]}"


def _default_state() -> Path:
    import platformdirs  # noqa: PLC0415 - only when no variable says where

    folder = Path(platformdirs.user_state_dir("rla-agent"))
    if network_file_system(folder) is not None:
        folder = Path(f"/var/tmp/rla-agent-{os.getuid()}")
    return folder / machine_key()
