"""Host keys of masters.

A key must be the pinned fingerprint (`host_key: SHA256:…`) or be in known_hosts; it is never added unasked.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_agent.replicate.backend.errors import BlockedError, HostKeyError
from rla_agent.replicate.backend.ssh_login import OWN_KNOWN_HOSTS, Login
from rla_client.contract.filesystem.atomic_write import write_atomic


def key_fingerprint(key: bytes) -> str:
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
    """Every line about the master; invalid ones are skipped.

    Paramiko's own reader stops at a line with a marker.
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
    """Instructions to remove the master's lines from its known_hosts files.

    They are commands, except for a line of patterns, which ssh-keygen does not change.
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
    """None when the key is the pinned or a known one, else an error that says how to fix it."""
    shown, name = key_fingerprint(key), login.known_as
    if any(entry.marker == "@revoked" and entry.key == key for entry in _known_hosts(login)):
        why = f"the host key {shown} of {name} is marked @revoked in known_hosts"
        return HostKeyError(
            "connect", b"", why, "the connection may be intercepted; give the master a new key"
        )
    if login.host_key:
        if login.host_key.strip().removesuffix("=") == shown:
            return None
        why = f"the host key of {name} is {shown}, but {login.host_key} is pinned"
        hint = (
            "the connection may be intercepted; if the master was reinstalled, put the new fingerprint "
            "into REMOTE_SETTING.host_key"
        )
        return HostKeyError("connect", b"", why, hint)
    known = known_keys(login)
    if any(entry == key for _, entry in known):
        return None
    if known:
        why = f"the host key of {name} has changed to {shown} ({key_type})"
        hint = (
            f"the connection may be intercepted; if the master was reinstalled: {_how_to_forget(login)}, "
            f"then {login.trust_command}"
        )
        return HostKeyError("connect", b"", why, hint)
    why = f"the host key of {name} is not known ({shown}, {key_type})"
    return HostKeyError("connect", b"", why, f"compare it with the master's and run: {login.trust_command}")


def pin(private: Path, login: Login, key_type: str, key: bytes) -> Path:
    """Add a key to the known_hosts file of the settings, else to our own; returns the file.

    A path that is not a regular file, such as /dev/null, cannot store a key.

    Raises:
        BlockedError: that file cannot be written.
    """
    path = private / OWN_KNOWN_HOSTS
    line = f"{login.known_as} {key_type} {base64.b64encode(key).decode()}\n".encode()
    try:
        if login.pin_in is not None and (login.pin_in.is_file() or not login.pin_in.exists()):
            path = Path(os.path.realpath(login.pin_in))  # a link stays a link
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = path.read_bytes() if path.exists() else b""
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        write_atomic(path, old + (b"\n" if old and not old.endswith(b"\n") else b"") + line, mode=mode)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise BlockedError("connect", b"", what, "correct REMOTE_SETTING.known_hosts") from error
    return path
