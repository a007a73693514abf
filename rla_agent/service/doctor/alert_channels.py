"""Findings about channels of alerts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.environment import secret_problem
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.config.alerts import Channel
from rla_client.contract.filesystem.trusted_paths import file_problem


def check_alerts(around: Surroundings) -> Iterator[Finding]:
    """Secrets that are missing or open to others, programs that are not there."""
    alerts, path = around.config.agent.alerts, around.config_path
    if alerts is None or path is None:
        return
    folder = path.absolute().parent
    used = {name for rule in alerts.rules for name in rule.send}
    for channel in alerts.channels:
        if channel.name not in used:
            what = f"no rule sends by the alert channel {channel.name}"
            fix = f"name it in a rule's `send`, or take it out of {path}"
            yield Finding("alerts-unused", "note", what, fix)
        yield from _secrets(around, channel, folder)
        if channel.kind == "command":
            yield from _command(channel, path)


def _secrets(around: Surroundings, channel: Channel, folder: Path) -> Iterator[Finding]:
    for name in filter(None, (channel.credentials_file, channel.url_file)):
        if problem := secret_problem(folder / os.path.expanduser(name), "secret"):
            what, fix = problem
            yield Finding("alerts-secret", "fault", f"alert channel {channel.name}: {what}", fix)
    seen = around.agent_environment()
    for variable in filter(None, (channel.password_env, channel.url_env)):
        if seen is not None and variable not in seen:
            what = f"alert channel {channel.name}: the agent's environment has no {variable}"
            fix = "name a file instead (credentials_file, url_file), or set it for the agent"
            yield Finding("alerts-secret", "fault", what, fix)


def _command(channel: Channel, config: Path) -> Iterator[Finding]:
    program = channel.command[0]
    found = shutil.which(config.absolute().parent / program if "/" in program else program)
    if found is None:
        what = f"alert channel {channel.name}: there is no program {program}"
        fix = f"correct AGENT.alerts.channels.{channel.name}.command"
        yield Finding("alerts-command", "fault", what, fix)
    for path in (config.absolute(), found):
        problem = None if path is None else file_problem(path)
        if problem is not None:
            what = f"the agent does not run the command of alert channel {channel.name}: {problem.what}"
            yield Finding("alerts-command", "fault", what, problem.fix.removeprefix("run: "))
