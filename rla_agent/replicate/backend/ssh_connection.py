"""SSH connection to a master.

At most `MAX_KEYS` keys are offered, in this order: `identity_file`, the ssh config's, the agent's own key,
ssh-agent keys, the default key files; then the password.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import LinkError, LoginError, NoRootError
from rla_agent.replicate.backend.host_keys import host_key_problem, known_keys
from rla_agent.replicate.backend.sftp import SftpSession
from rla_agent.replicate.backend.sftp_wire import START_HINT, open_wire
from rla_agent.replicate.backend.ssh_login import Login
from rla_agent.replicate.backend.ssh_proxy import ProxySocket

if TYPE_CHECKING:
    import paramiko


CONNECT_TIMEOUT_S: Final = 15.0
HANDSHAKE_TIMEOUT_S: Final = 25.0  # for each step of a login: a dead peer is noticed within 30 s
KEEPALIVE_S: Final = 15
MAX_KEYS: Final = 5  # sshd's MaxAuthTries is 6
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


def open_sftp(login: Login, root: str, *, make_root: bool = False) -> SftpSession:
    """Connect, log in, start SFTP and check that the root is a folder; `make_root`: make it if need be.

    Raises:
        LinkError: the master cannot be reached now.
        BlockedError: host key, login or root need a person.
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
        LoginError: it accepts none of our keys and passwords.
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
    if known:  # prefer the key types in known_hosts, as ssh does
        options.key_types = sorted(options.key_types, key=lambda name: _base_type(name) not in known)
    try:
        transport.start_client(timeout=HANDSHAKE_TIMEOUT_S)
    except (paramiko.SSHException, EOFError, OSError) as error:
        told = pipe.last_words() if isinstance(pipe, ProxySocket) else ""
        transport.close()
        if told:
            why = f"{where}, by the way that the ssh config names: {told}"  # its command may hold a password
            hint = "see ProxyJump or ProxyCommand in the ssh config, and the known_hosts of the host between"
            raise LinkError("connect", b"", why, hint) from error
        raise LinkError("connect", b"", f"{where}: {_words(error)}", "is that port sshd's?") from error
    return transport


def _base_type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _socket(login: Login) -> socket.socket:
    if login.proxy_command:
        return ProxySocket.run(login.proxy_command)
    pipe = socket.create_connection((login.address, login.port), timeout=CONNECT_TIMEOUT_S)
    pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(HANDSHAKE_TIMEOUT_S * 1000))
    return pipe


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
            continue  # encrypted, or no key: the agent may have it
    if os.environ.get("SSH_AUTH_SOCK"):
        with suppress(OSError, paramiko.SSHException):
            keys += [(f"ssh-agent key {key.get_name()}", key) for key in paramiko.Agent().get_keys()]
    unique = {key.asbytes(): (label, key) for label, key in reversed(keys)}
    return list(reversed(unique.values()))


def _words(error: BaseException) -> str:
    told = error.strerror if isinstance(error, OSError) else ""
    return told or str(error) or type(error).__name__


def server_key(login: Login) -> tuple[str, bytes]:
    """Type and blob of the master's host key, unchecked. For `trust` only.

    Raises:
        LinkError: the master cannot be reached.
    """
    with closing(_handshake(login)) as transport:
        key = transport.get_remote_server_key()
        return key.get_name(), key.asbytes()
