"""Login data for a master.

They come from `rla_config.yaml`, completed by `~/.ssh/config`. Secrets are in `Login` only and never printed.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import BlockedError
from rla_agent.replicate.backend.password import read_password
from rla_agent.replicate.backend.ssh_config import host_settings, proxy_command_of
from rla_client.contract.process.account import user_home, user_name

if TYPE_CHECKING:
    from rla_client.config.schema import RemoteSetting


DEFAULT_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
OWN_KEY: Final = "id_ed25519"
OWN_KNOWN_HOSTS: Final = "known_hosts"


@dataclass(frozen=True, slots=True)
class Login:
    """Where and as whom to log in.

    `host_name`: the master's name in known_hosts; `trust`: how to pin it; `pin_in`: the known_hosts file
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
        private: `<state>/replicate`, with the agent's own key and known_hosts.
        config: the file that the settings come from.

    Raises:
        BlockedError: no server or user is named, or the secret that the settings name is not there.
        ConfigError: `~/.ssh/config` cannot be read, or has faults.
    """
    if not remote.ftp_server:
        raise BlockedError("connect", b"", "REMOTE_SETTING.ftp_server is empty", "name the master there")
    found = host_settings(remote.ftp_server)
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
        proxy_command=proxy_command_of(found, address, port),
        password=read_password(remote),
        trust=shlex.join(trust),
        pin_in=Path(os.path.expanduser(remote.known_hosts)) if remote.known_hosts else None,
    )


def _int(value: object, default: int) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() else default
