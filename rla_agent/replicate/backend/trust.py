"""Preparation of a master (`rla-agent trust HOST`).

Only this module adds a host key, and only after the user has seen and accepted it. The steps: show the
master's key and its fingerprint; pin it in `known_hosts` of the settings, else in
`<state>/replicate/known_hosts`; make a key of our own (ed25519) if none of the user's is accepted; print the
authorized_keys line; then, once the login succeeds, make the remote root if it is missing, and write, rename
and delete a test file under it. Replication itself never makes the root, so that a mistyped name does not
become a second database.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.backend.errors import LoginError, NoRootError, TargetError, TransientError
from rla_agent.replicate.backend.host_keys import host_key_problem, key_fingerprint, pin
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.ssh_connection import open_sftp, server_key
from rla_agent.replicate.backend.ssh_login import OWN_KEY, Login
from rla_client.contract.filesystem.atomic_write import write_atomic

_TRIED_MODE: Final = 0o660  # wider than a umask allows, so a test whether the server sets it afterwards


@dataclass(frozen=True, slots=True)
class Trusted:
    """Result. `ready`: the test file succeeded; `known`: the host key is known; `say`: lines for the user."""

    ready: bool
    say: tuple[str, ...]
    known: bool = True


def trust(login: Login, root: str, private: Path, accept: Callable[[str], bool]) -> Trusted:
    """Prepare a master.

    Args:
        login: host and user.
        root: remote root; empty skips the test file.
        private: `<state>/replicate`.
        accept: asks the user: True pins the key with that fingerprint, or makes that remote root.

    Raises:
        TargetError: the master cannot be reached, or refuses the test file.
    """
    key_type, key = server_key(login)
    say = [f"{login.known_as} shows {key_fingerprint(key)} ({key_type})"]
    problem = host_key_problem(login, key_type, key)
    if problem is not None:
        if "is not known" not in problem.why:
            return Trusted(ready=False, say=(*say, problem.why, problem.hint), known=False)
        if not accept(f"Is this the master's key ({key_fingerprint(key)})? "):
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


def try_out(session: TargetSession) -> list[str]:
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
