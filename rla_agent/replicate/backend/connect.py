"""An SFTP session at the master, or a `BlockedError` that says what to do; and how a master is made ready.

The host key must be the pinned fingerprint (`host_key: SHA256:…`) or be in known_hosts; it is never
added unasked. Names, ports, users, keys and jump hosts come from `rla_config.yaml` first and from
`~/.ssh/config` for what it leaves out. Offered are, in this order and at most `MAX_KEYS`: `identity_file`,
the ssh config's, the agent's own key, ssh-agent keys, the default key files; then the password. Secrets live
in `Login` only and are never shown.

`trust` (`rla-agent trust HOST`) is the one place that adds a host key, and only after it was shown and
accepted. In this order: show the master's key and its fingerprint; pin it in `known_hosts` of the settings,
else in `<state>/replicate/known_hosts`; make a key of our own (ed25519) if none of the user's is taken;
print the authorized_keys line; then, once the master lets us in, make the remote root if it is not there,
and write, rename and delete a test file under it. Replication itself never makes the root, so that a
mistyped name does not become a second database.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import logging
import os
import re
import secrets
import shlex
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.sftp import SftpSession
from rla_agent.replicate.backend.sftp_wire import START_HINT, open_wire
from rla_agent.replicate.backend.target import (
    BlockedError,
    HostKeyError,
    LinkError,
    LoginError,
    NoRootError,
    RemoteStat,
    Session,
    SmallFile,
    TargetError,
    TransientError,
)
from rla_client.contract.errors import ConfigError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.process.account import user_home, user_name

if TYPE_CHECKING:
    import paramiko

    from rla_client.config.schema import RemoteSetting

CONNECT_TIMEOUT_S: Final = 15.0
HANDSHAKE_TIMEOUT_S: Final = 25.0  # for each step of a login: a dead peer is noticed within 30 s
KEEPALIVE_S: Final = 15
MAX_KEYS: Final = 5  # sshd's MaxAuthTries is 6
MAX_CREDENTIALS_BYTES: Final = 64 << 10
CIPHERS: Final = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes256-ctr",
    "aes192-ctr",
    "aes128-ctr",
)
WEAK: Final = {
    "macs": ["hmac-md5", "hmac-md5-96", "hmac-sha1", "hmac-sha1-96"],
    "kex": [
        "diffie-hellman-group14-sha1",
        "diffie-hellman-group1-sha1",
        "diffie-hellman-group-exchange-sha1",
    ],
    "keys": ["ssh-dss", "ssh-rsa"],
    "pubkeys": ["ssh-dss", "ssh-rsa"],
}
DEFAULT_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
OWN_KEY: Final = "id_ed25519"
OWN_KNOWN_HOSTS: Final = "known_hosts"
_TRIED_MODE: Final = 0o660  # a umask takes of it, so it shows whether the server sets it afterwards
MAX_INCLUDES: Final = 16  # files of an ssh_config inside one another, as OpenSSH has it
_ANY_HOST: Final = "Host *"
_INCLUDE: Final = re.compile(r"\s*include(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_BLOCK: Final = re.compile(r"\s*(host|match)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Login:
    """Where and as whom to log in.

    `host_name`: what known_hosts calls the master; `trust`: how to pin it; `pin_in`: the known_hosts file
    that the settings name.
    """

    address: str
    host_name: str
    port: int
    user: str
    host_key: str = ""
    known_hosts: tuple[Path, ...] = ()
    key_files: tuple[Path, ...] = ()
    proxy_command: str = ""
    password: str = field(default="", repr=False)
    trust: str = ""
    pin_in: Path | None = None

    @property
    def trust_command(self) -> str:
        """The whole `rla-agent trust …` that pins this master's key and tries its root."""
        return self.trust or shlex.join(_trust_words(self.host_name, self.port, self.user, ""))

    @property
    def known_as(self) -> str:
        """The name in known_hosts: `[name]:port` for other ports than 22."""
        return self.host_name if self.port == 22 else f"[{self.host_name}]:{self.port}"  # noqa: PLR2004


def _trust_words(host: str, port: int, user: str, root: str) -> list[str]:
    words = ["rla-agent", "trust", host]
    words += ["--port", str(port)] if port not in {0, 22} else []
    words += ["--user", user] if user else []
    return words + (["--root", root] if root else [])


def resolve_login(remote: RemoteSetting, private: Path, config: Path | None = None) -> Login:
    """Complete the settings with `~/.ssh/config` and the secrets.

    Args:
        remote: `REMOTE_SETTING`.
        private: `<state>/replicate`, where the agent's own key and known_hosts lie.
        config: the file that the settings come from.

    Raises:
        BlockedError: no server or user is named, or the secret that the settings name is not there.
        ConfigError: `~/.ssh/config` cannot be read, or has faults.
    """
    if not remote.ftp_server:
        raise BlockedError("connect", b"", "REMOTE_SETTING.ftp_server is empty", "name the master there")
    found = _ssh_config(remote.ftp_server)
    port = remote.port or _int(found.get("port"), 22)
    address = str(found.get("hostname", remote.ftp_server))
    identities = found.get("identityfile", [])
    files = [remote.identity_file] if remote.identity_file else []
    files += identities if isinstance(identities, list) else [identities]
    home = user_home() / ".ssh"
    files += [str(private / OWN_KEY), *(str(home / name) for name in DEFAULT_KEYS)]
    known = [remote.known_hosts] if remote.known_hosts else str(found.get("userknownhostsfile", "")).split()
    known = known or [str(home / "known_hosts"), "/etc/ssh/ssh_known_hosts"]
    user = remote.username or str(found.get("user", "")) or user_name()
    if not user:
        what = f"user {os.getuid()} has no name here"
        raise BlockedError("log in", b"", what, "name REMOTE_SETTING.username in rla_config.yaml")
    trust = _trust_words(remote.ftp_server, remote.port or 0, remote.username, remote.remote_data_root)
    if config is not None:
        trust = [*trust[:3], "--config", os.path.abspath(config)]
    return Login(
        address=address,
        host_name=str(found.get("hostkeyalias", address)),
        port=port,
        user=user,
        host_key=remote.host_key,
        known_hosts=(*(Path(os.path.expanduser(name)) for name in known), private / OWN_KNOWN_HOSTS),
        key_files=tuple(dict.fromkeys(Path(os.path.expanduser(name)) for name in files)),
        proxy_command=_proxy(found, address, port),
        password=read_password(remote),
        trust=shlex.join(trust),
        pin_in=Path(os.path.expanduser(remote.known_hosts)) if remote.known_hosts else None,
    )


def read_password(remote: RemoteSetting) -> str:
    """The password that the settings give or point to; empty when they give none.

    Raises:
        BlockedError: the variable or file that they name is not there.
    """
    if remote.password_env:
        value = os.environ.get(remote.password_env)
        if value is None:
            what = f"the environment variable {remote.password_env} is not set"
            hint = (
                f"export {remote.password_env}, then: rla-agent restart (a unit: EnvironmentFile=); "
                "or use credentials_file"
            )
            raise BlockedError("log in", b"", what, hint)
        return value
    if remote.credentials_file:
        return _credentials(Path(os.path.expanduser(remote.credentials_file)), remote.ftp_server)
    return remote.password


def _credentials(path: Path, server: str) -> str:
    """The file holds the password alone, or lines `server: password`; nobody else may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_CREDENTIALS_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        what = f"credentials_file {path} cannot be read"
        raise BlockedError("log in", b"", what, "check the name and its permissions") from error
    if mode & 0o077:
        raise BlockedError("log in", b"", f"{path} is open to other users", f"run: chmod 600 {path}")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() == server:
            return value.strip()
    if len(lines) == 1:
        return lines[0]
    raise BlockedError("log in", b"", f"{path} has no line for {server}", f"add a line `{server}: password`")


def open_sftp(login: Login, root: str, *, make_root: bool = False) -> SftpSession:
    """Connect, log in, start SFTP and check that the root is a folder; `make_root`: make it if need be.

    Raises:
        LinkError: the master cannot be reached now.
        BlockedError: host key, login or root need somebody.
    """
    import paramiko  # noqa: PLC0415 - half a second, and only this needs it

    with ExitStack() as failed:
        transport = open_transport(login)
        failed.callback(transport.close)
        try:
            name = root.encode("utf-8", "surrogateescape")
            session = SftpSession(open_wire(transport), name, transport, make_root=make_root)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise LinkError("start sftp", b"", _words(error), START_HINT) from error
        except NoRootError as error:
            error.hint += f", or have it made: {login.trust_command}"
            raise
        failed.pop_all()
    return session


def open_transport(login: Login) -> paramiko.Transport:
    """Connect, check the host key, log in.

    Raises:
        LinkError: the master cannot be reached now.
        HostKeyError: its key is unknown or changed.
        LoginError: it takes none of our keys and passwords.
    """
    import paramiko  # noqa: PLC0415 - half a second, and only this needs it

    transport = _handshake(login)
    try:
        key = transport.get_remote_server_key()
        problem = host_key_problem(login, key.get_name(), key.asbytes())
        if problem is not None:
            raise problem  # noqa: TRY301 - the transport is closed below
        _authenticate(transport, login)
        transport.set_keepalive(KEEPALIVE_S)
    except (paramiko.SSHException, EOFError, OSError) as error:
        transport.close()
        raise LinkError("log in", b"", _words(error), "is sshd restarting or overloaded?") from error
    except BaseException:
        transport.close()
        raise
    return transport


def _handshake(login: Login) -> paramiko.Transport:
    import paramiko  # noqa: PLC0415

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    where = f"{login.address}:{login.port}"
    try:
        pipe = _socket(login)
    except OSError as error:
        raise LinkError("connect", b"", f"{where}: {_words(error)}", "is the master up?") from error
    try:
        transport = paramiko.Transport(pipe, default_window_size=4 << 20, disabled_algorithms=WEAK)
    except (paramiko.SSHException, OSError) as error:
        pipe.close()
        raise LinkError("connect", b"", f"{where}: {_words(error)}") from error
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = HANDSHAKE_TIMEOUT_S
    options = transport.get_security_options()
    options.ciphers = tuple(cipher for cipher in CIPHERS if cipher in options.ciphers)
    known = {key_type for key_type, _ in known_keys(login)}
    if known:  # ask for the key type that we know, as ssh does
        options.key_types = sorted(options.key_types, key=lambda name: _base_type(name) not in known)
    try:
        transport.start_client(timeout=HANDSHAKE_TIMEOUT_S)
    except (paramiko.SSHException, EOFError, OSError) as error:
        transport.close()
        raise LinkError("connect", b"", f"{where}: {_words(error)}", "is that port sshd's?") from error
    return transport


def _base_type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _socket(login: Login) -> socket.socket:
    if login.proxy_command:
        import paramiko  # noqa: PLC0415

        return paramiko.ProxyCommand(login.proxy_command)  # type: ignore[return-value]
    pipe = socket.create_connection((login.address, login.port), timeout=CONNECT_TIMEOUT_S)
    pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(HANDSHAKE_TIMEOUT_S * 1000))
    return pipe


def fingerprint(key: bytes) -> str:
    """`SHA256:…` as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class _Known:
    """A line of a known_hosts file about the master. `marker`: empty, `@revoked` or `@cert-authority`."""

    path: Path
    line: int
    marker: str
    names: str
    key_type: str
    key: bytes


def known_keys(login: Login) -> list[tuple[str, bytes]]:
    """(type, key) of every entry for the master in its known_hosts files."""
    return [(entry.key_type, entry.key) for entry in _known_hosts(login) if not entry.marker]


def _known_hosts(login: Login) -> Iterator[_Known]:
    """Every line that is about the master; one that makes no sense is passed over.

    Paramiko's own reader ends at a line with a marker.
    """
    for path in login.known_hosts:
        lines: list[str] = []
        with suppress(OSError):
            lines = path.read_text(errors="replace").split("\n")
        for number, line in enumerate(lines, 1):
            words = line.split()
            marker = words.pop(0) if line.lstrip().startswith("@") else ""
            with suppress(ValueError, AssertionError):  # the latter: paramiko's, of a hash's salt
                names, key_type, key = words[:3]
                if _is_named(login.known_as, names):
                    yield _Known(path, number, marker, names, key_type, base64.b64decode(key, validate=True))


def _how_to_forget(login: Login) -> str:
    """What takes the master's lines out of its known_hosts files, each of them.

    A command, but for a line of patterns, which ssh-keygen leaves alone.
    """
    steps: dict[str, None] = {}
    for entry in _known_hosts(login):
        if entry.marker:
            continue
        if re.search("[*?!]", entry.names):
            steps[f"delete line {entry.line} of {shlex.quote(str(entry.path))}"] = None
        else:
            steps[shlex.join(["ssh-keygen", "-R", login.known_as, "-f", str(entry.path)])] = None
    return ", ".join(steps)


def _is_named(host: str, names: str) -> bool:
    """Whether the first field of a line of known_hosts (names, patterns, a hash) means this host."""
    from paramiko import HostKeys  # noqa: PLC0415

    found = False
    for name in names.split(","):
        pattern = re.escape(name.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        hashed = name.startswith("|1|") and HostKeys.hash_host(host, name) == name
        if hashed or re.fullmatch(pattern, host, re.IGNORECASE):
            if name.startswith("!"):
                return False
            found = True
    return found


def host_key_problem(login: Login, key_type: str, key: bytes) -> HostKeyError | None:
    """None when the key is the pinned or a known one, else an error with the words to fix it."""
    shown, name = fingerprint(key), login.known_as
    if any(entry.marker == "@revoked" and entry.key == key for entry in _known_hosts(login)):
        why = f"the host key {shown} of {name} is marked @revoked in known_hosts"
        return HostKeyError("connect", b"", why, "somebody may be listening in; give the master a new key")
    if login.host_key:
        if login.host_key.strip().removesuffix("=") == shown:
            return None
        why = f"the host key of {name} is {shown}, but {login.host_key} is pinned"
        hint = (
            "somebody may be listening in; if the master was reinstalled, put the new fingerprint into "
            "REMOTE_SETTING.host_key"
        )
        return HostKeyError("connect", b"", why, hint)
    known = known_keys(login)
    if any(entry == key for _, entry in known):
        return None
    if known:
        why = f"the host key of {name} has changed to {shown} ({key_type})"
        hint = (
            f"somebody may be listening in; if the master was reinstalled: {_how_to_forget(login)}, "
            f"then {login.trust_command}"
        )
        return HostKeyError("connect", b"", why, hint)
    why = f"the host key of {name} is not known ({shown}, {key_type})"
    return HostKeyError("connect", b"", why, f"compare it with the master's and run: {login.trust_command}")


def _authenticate(transport: paramiko.Transport, login: Login) -> None:
    import paramiko  # noqa: PLC0415

    tried = []
    for label, key in _keys(login)[:MAX_KEYS]:
        try:
            transport.auth_publickey(login.user, key)
        except paramiko.AuthenticationException:
            tried.append(label)
            continue
        return
    if login.password:
        try:
            transport.auth_password(login.user, login.password)
        except paramiko.AuthenticationException:
            tried.append("the password")
        else:
            return
    what = ", ".join(tried) if tried else "no key and no password was there to offer"
    why = f"{login.user}@{login.known_as} refused us ({what})"
    hint = f"run: {login.trust_command}, and add the line it prints to the master's authorized_keys"
    raise LoginError("log in", b"", why, hint)


def _keys(login: Login) -> list[tuple[str, paramiko.PKey]]:
    import paramiko  # noqa: PLC0415

    keys: list[tuple[str, paramiko.PKey]] = []
    for path in login.key_files:
        if not path.is_file():
            continue
        try:
            keys.append((str(path), paramiko.PKey.from_path(str(path))))
        except (OSError, ValueError, TypeError, paramiko.SSHException, paramiko.pkey.UnknownKeyType):
            continue  # encrypted, or no key: the agent may hold it
    if os.environ.get("SSH_AUTH_SOCK"):
        with suppress(OSError, paramiko.SSHException):
            keys += [(f"ssh-agent key {key.get_name()}", key) for key in paramiko.Agent().get_keys()]
    unique = {key.asbytes(): (label, key) for label, key in reversed(keys)}
    return list(reversed(unique.values()))


def _ssh_config(host: str) -> dict[str, str | list[str]]:
    import paramiko  # noqa: PLC0415

    path = user_home() / ".ssh" / "config"
    try:
        if not path.is_file():
            return {}
        if not user_name():  # paramiko needs it, whatever the file says
            what = f"user {os.getuid()} has no name here, so {path} cannot be used"
            raise BlockedError("log in", b"", what, "set LOGNAME for the agent, then: rla-agent restart")
        lines: list[str] = []
        _read_ssh_config(path, host, lines)
        return dict(paramiko.SSHConfig.from_text("\n".join(lines)).lookup(host))
    except OSError as error:  # it may pass
        raise LinkError("read ~/.ssh/config", b"", str(error), "is the home folder there?") from error
    except (paramiko.SSHException, ValueError) as error:
        raise ConfigError(str(path), [str(error)]) from error


def _read_ssh_config(path: Path, host: str, lines: list[str], block: str = _ANY_HOST, depth: int = 0) -> None:
    """Add the lines of an ssh_config and of what it includes for a host, which paramiko passes over.

    What is included under a Host or Match line that does not match the host is left out. `block`: the Host or
    Match line that the file's first lines belong to; holds again after each included file.
    """
    for line in path.read_text().splitlines():
        include = _INCLUDE.match(line)
        if include is None:
            block = line if _BLOCK.match(line) else block
            lines.append(line)
        elif depth < MAX_INCLUDES and _matches(lines, block, host):
            for pattern in shlex.split(include[1]):
                for name in sorted(glob.glob(os.path.join(user_home(), ".ssh", os.path.expanduser(pattern)))):
                    if os.path.isfile(name):
                        _read_ssh_config(Path(name), host, lines, block, depth + 1)
                        lines.append(block)


def _matches(lines: list[str], block: str, host: str) -> bool:
    """Whether a Host or Match line after these lines means a host."""
    from paramiko import SSHConfig  # noqa: PLC0415

    probe = "\n".join([*lines, block, "RlaProbe yes"])
    return block == _ANY_HOST or "rlaprobe" in SSHConfig.from_text(probe).lookup(host)


def _proxy(found: dict[str, str | list[str]], address: str, port: int) -> str:
    command = str(found.get("proxycommand", ""))
    jump = str(found.get("proxyjump", ""))
    if command and command != "none":
        return command
    return f"ssh -o BatchMode=yes -W {address}:{port} {jump}" if jump and jump != "none" else ""


def _int(value: object, default: int) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() else default


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


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
        say.append(f"pinned in {pin(private, login, key_type, key)}")
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
    with closing(session):
        say += try_out(session) if root else []
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


def server_key(login: Login) -> tuple[str, bytes]:
    """Type and blob of the key that the master shows, unchecked. For `trust` only.

    Raises:
        LinkError: the master cannot be reached.
    """
    with closing(_handshake(login)) as transport:
        key = transport.get_remote_server_key()
        return key.get_name(), key.asbytes()


def pin(private: Path, login: Login, key_type: str, key: bytes) -> Path:
    """Add a key to the known_hosts file that the settings name, else to our own; which it was.

    A name that stands for no file, as /dev/null, is no place to keep a key in.

    Raises:
        BlockedError: that file cannot be written.
    """
    path = private / OWN_KNOWN_HOSTS
    line = f"{login.known_as} {key_type} {base64.b64encode(key).decode()}\n".encode()
    try:
        if login.pin_in is not None and (login.pin_in.is_file() or not login.pin_in.exists()):
            path = Path(os.path.realpath(login.pin_in))  # a link stays one
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = path.read_bytes() if path.exists() else b""
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        write_atomic(path, old + (b"\n" if old and not old.endswith(b"\n") else b"") + line, mode=mode)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise BlockedError("connect", b"", what, "correct REMOTE_SETTING.known_hosts") from error
    return path


def own_key(private: Path) -> str:
    """The authorized_keys line of our own key, made on first use."""
    import paramiko  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    path = private / OWN_KEY
    if not path.exists():
        secret = ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        write_atomic(path, secret, mode=0o600)
    key = paramiko.Ed25519Key.from_private_key_file(str(path))
    return f"restrict {key.get_name()} {key.get_base64()} rla-agent@{os.uname().nodename}"
