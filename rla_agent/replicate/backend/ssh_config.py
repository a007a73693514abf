"""Settings for a host in `~/.ssh/config`."""

from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path
from typing import Final

from rla_agent.replicate.backend.errors import BlockedError, LinkError
from rla_client.contract.errors import ConfigError
from rla_client.contract.process.account import user_home, user_name

MAX_INCLUDES: Final = 16  # files of an ssh_config inside one another, as OpenSSH has it
_ANY_HOST: Final = "Host *"
_INCLUDE: Final = re.compile(r"\s*include(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_BLOCK: Final = re.compile(r"\s*(host|match)\b", re.IGNORECASE)


def host_settings(host: str) -> dict[str, str | list[str]]:
    """Settings of a host in `~/.ssh/config`."""
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
    except OSError as error:  # it may be transient
        raise LinkError("read ~/.ssh/config", b"", str(error), "is the home folder there?") from error
    except (paramiko.SSHException, ValueError) as error:
        raise ConfigError(str(path), [str(error)]) from error


def _read_ssh_config(path: Path, host: str, lines: list[str], block: str = _ANY_HOST, depth: int = 0) -> None:
    """Add the lines of an ssh_config and of its included files for a host, since paramiko ignores Include.

    Files included under a Host or Match line that does not match the host are skipped. `block`: the Host or
    Match line that the file's first lines belong to; it applies again after each included file.
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


def proxy_command_of(found: dict[str, str | list[str]], address: str, port: int) -> str:
    """The command that connects to a host through another one; empty: none."""
    command = str(found.get("proxycommand", ""))
    jump = str(found.get("proxyjump", ""))
    if command and command != "none":
        return command
    if not jump or jump == "none":
        return ""
    before, _, last = jump.rpartition(",")
    target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    gate = last if "://" in last or ":" not in last else f"ssh://{last}"  # read only with a port
    return shlex.join(["ssh", "-o", "BatchMode=yes", *(["-J", before] if before else []), "-W", target, gate])
