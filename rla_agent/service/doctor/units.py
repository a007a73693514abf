"""Findings about the installed systemd unit."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.systemctl import manager_reachable, systemctl
from rla_agent.service.unit_files import DROP_IN_NAME, TEMPLATE_NAME, config_in, template, user_unit
from rla_client.contract.agent.systemd_unit import SYSTEM_UNIT_FOLDER, Unit, unit_file


def unit_findings(unit: Unit | None, user: str, *, lingers: bool, foreign: bool) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves.

    Args:
        unit: that is installed.
        user: login name.
        lingers: the user's service manager stays when they log out.
        foreign: an agent runs that no unit started.
    """
    own = unit_file()
    if own is not None:
        text = own.read_text(encoding="utf-8")
        yield from _interpreter(own, text, "rla-agent install-service")
        if text != user_unit(config=config_in(text)):
            what = f"{own} is not what this version would write"
            fix = "rla-agent install-service && systemctl --user daemon-reload"
            yield Finding("unit-stale", "warning", what, fix)
        if user and not lingers:
            what = "the user unit ends when you log out"
            yield Finding("unit-linger", "warning", what, f"loginctl enable-linger {user}")
    elif unit is not None and unit.system:
        yield from _system_unit(unit.name)
    if unit is None:
        return
    scope = "" if unit.system else "--user "
    if foreign:
        what = f"{unit.name} is installed, and an agent runs that it did not start"
        yield Finding("unit-not-serving", "warning", what, "rla-agent restart")
    elif systemctl(unit, "is-failed").stdout.strip() == "failed":
        what = f"{unit.name} has failed"
        reset = f"systemctl {scope}reset-failed {unit.name} && rla-agent restart"
        fix = f"journalctl {scope}-u {unit.name}; then: {reset}"
        yield Finding("unit-failed", "fault", what, fix)
    elif not manager_reachable(unit):
        what = "the service manager of this user cannot be reached from here"
        yield Finding("unit-unreachable", "note", what, f"loginctl enable-linger {user}")


def _system_unit(name: str) -> Iterator[Finding]:
    fix = "as root: rla-agent install-service --system && systemctl daemon-reload"
    path = SYSTEM_UNIT_FOLDER / TEMPLATE_NAME
    if path.exists() and path.read_text(encoding="utf-8") != template(TEMPLATE_NAME):
        yield Finding("unit-stale", "warning", f"{path} is not what this version would write", fix)
    own = SYSTEM_UNIT_FOLDER / f"{name}.d" / DROP_IN_NAME
    if not own.exists():
        yield Finding("unit-stale", "fault", f"{own} is missing: the service may write nothing", fix)
    else:
        yield from _interpreter(own, own.read_text(encoding="utf-8"), fix)


def _interpreter(path: Path, text: str, fix: str) -> Iterator[Finding]:
    starts = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program = shlex.split(starts[-1])[0] if starts else ""
    if not os.access(program, os.X_OK):
        what = f"{path} starts {program!r}, which is not there any more"
        yield Finding("unit-interpreter", "fault", what, fix)


def check_unit(around: Surroundings) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves."""
    foreign = around.alive and not around.holder.get("service")
    return unit_findings(around.unit, around.user, lingers=around.lingers, foreign=foreign)
