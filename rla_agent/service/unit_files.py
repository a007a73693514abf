"""systemd unit files of the agent.

The texts in `systemd/` are complete; machine-dependent parts are added here: the interpreter, the environment
that determines the state folder, and for the system unit, a template with a drop-in for one user, the folders
it may write. Nothing is enabled; the caller gets the commands for that.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rla_client.contract.agent.systemd_unit import SYSTEM_UNIT_FOLDER, UNIT_NAME
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.file_systems import network_file_system
from rla_client.contract.process.account import user_home

TEMPLATE_NAME = "rla-agent@.service"
DROP_IN_NAME = "10-rla-agent.conf"
ROOT_MARK = "# data root: "
EXEC_START = "ExecStart=/usr/bin/env rla-agent start"
HIDDEN_BY_PRIVATE_TMP = ("/tmp/", "/var/tmp/")


def template(name: str) -> str:
    """Text of a unit as shipped."""
    package = Path(__file__).resolve().parents[1]
    packaged, checkout = package / "data" / "systemd" / name, package.parent / "systemd" / name
    return (packaged if packaged.exists() else checkout).read_text(encoding="utf-8")


def quote(text: str) -> str:
    """One word of a unit file.

    Raises:
        ArgumentError: it holds a line end.
    """
    if "\n" in text or "\r" in text:
        raise ArgumentError(f"{text!r} cannot stand in a unit file")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _exec_lines(config: str) -> list[str]:
    """ExecStart of this installation, and what it needs to find the package."""
    named = f" --config {quote(config)}" if config else ""
    lines = [f"ExecStart={quote(sys.executable)} -m rla_agent start{named}"]
    parent = Path(__file__).resolve().parents[2]
    if parent.name not in {"site-packages", "dist-packages"}:
        lines.append(f"Environment={quote(f'PYTHONPATH={parent}')}")
    return lines


def config_in(text: str) -> str:
    """The configuration that a unit or drop-in names, empty without one."""
    starts = [line for line in text.splitlines() if line.startswith("ExecStart=") and "--config" in line]
    return shlex.split(starts[-1])[-1].replace("%%", "%") if starts else ""


def user_unit(config: str = "") -> str:
    """The user unit for this installation."""
    lines = _exec_lines(config)
    state_home = os.environ.get("XDG_STATE_HOME")
    if state_home:
        lines.append(f"Environment={quote(f'XDG_STATE_HOME={state_home}')}")
    return template(UNIT_NAME).replace(EXEC_START, "\n".join(lines))


def install_user_unit(destination: Path | None, config: Path | None = None) -> list[str]:
    """Write the user unit.

    Args:
        destination: folder instead of the user's own.
        config: rla_config.yaml whose AGENT section the service uses.

    Returns:
        What was done and what to do now, line by line.

    Raises:
        OSError: it cannot be written.
    """
    base = os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"
    path = (destination or Path(base, "systemd", "user")) / UNIT_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, user_unit(config=os.path.abspath(config) if config else "").encode())
    return [
        f"wrote {path}",
        "enable it:                     systemctl --user daemon-reload",
        f"                               systemctl --user enable --now {UNIT_NAME}",
        "keep it running after logout:  loginctl enable-linger",
    ]


def drop_in(state: str, roots: Sequence[str], config: str = "") -> str:
    """Drop-in of the template for one user: the folders of state and data, and the configuration."""
    writable = [state, *roots]
    lines = [
        "# Written by: rla-agent install-service --system",
        *(ROOT_MARK + root for root in roots),
        "[Service]",
    ]
    lines += ["ExecStart=", *_exec_lines(config)]
    lines += [f"ReadWritePaths={quote('-' + path)}" for path in writable]
    hidden = [path for path in writable if (path + "/").startswith(HIDDEN_BY_PRIVATE_TMP)]
    lines += [f"BindPaths={quote('-' + path)}" for path in hidden]
    return "\n".join(lines) + "\n"


def install_system_unit(
    data_roots: Sequence[Path], for_user: str, destination: Path | None, config: Path | None = None
) -> list[str]:
    """Write the template and one user's drop-in; roots of an earlier call stay.

    Args:
        data_roots: folders that the service may write.
        for_user: whom it serves; empty: who called sudo, else the caller.
        destination: folder instead of /etc/systemd/system.
        config: rla_config.yaml whose AGENT section the service uses.

    Returns:
        What was done and what to do now, line by line.

    Raises:
        ArgumentError: an unknown user, or a data root that is not a folder.
        OSError: something cannot be written; as a rule: not root.
    """
    user = _user(for_user)
    folder = destination or SYSTEM_UNIT_FOLDER
    unit = f"rla-agent@{user.pw_name}.service"
    path = folder / f"{unit}.d" / DROP_IN_NAME
    roots = list(dict.fromkeys([*known_roots(path), *(_root(root) for root in data_roots)]))
    state = state_folder(user)
    if destination is None:
        _make_state(state, user)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / TEMPLATE_NAME, template(TEMPLATE_NAME).encode())
    text = drop_in(state, roots, config=os.path.abspath(config) if config else "")
    write_atomic(path, text.encode())
    lines = [f"wrote {folder / TEMPLATE_NAME}", f"wrote {path}"]
    lines += [f"it may write {state}", *(f"it may write {root}" for root in roots)]
    if not roots:
        lines.append("no data root was named: rla-agent install-service --system --data-root DIR")
    return [
        *lines,
        "enable it:  systemctl daemon-reload",
        f"            systemctl enable --now {unit}",
        f"after a change:  systemctl daemon-reload && systemctl restart {unit}",
    ]


def known_roots(path: Path) -> list[str]:
    """Data roots that a drop-in names."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.removeprefix(ROOT_MARK) for line in lines if line.startswith(ROOT_MARK)]


def state_folder(user: pwd.struct_passwd) -> str:
    """Where the agent of a user without special environment keeps its state."""
    folder = Path(user.pw_dir, ".local", "state", "rla-agent")
    if network_file_system(folder) is not None:
        return f"/var/tmp/rla-agent-{user.pw_uid}"
    return str(folder)


def _user(name: str) -> pwd.struct_passwd:
    try:
        wanted = name or os.environ.get("SUDO_USER", "")
        return pwd.getpwnam(wanted) if wanted else pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise ArgumentError(f"there is no user {name!r}") from error


def _root(root: Path) -> str:
    if not root.is_dir():
        raise ArgumentError(
            f"the data root {root} is not a folder; make it first, as the user who will train"
        )
    return os.path.realpath(root)


def _make_state(state: str, user: pwd.struct_passwd) -> None:
    """ReadWritePaths must exist before the service starts; the folders made here are the user's."""
    missing = [path for path in (Path(state), *Path(state).parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700)
        os.chown(path, user.pw_uid, user.pw_gid)
