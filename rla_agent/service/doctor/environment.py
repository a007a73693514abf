"""Findings about secrets in the agent's environment.

That is not the environment of the shell that `doctor` runs in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.config.schema import BUCKET_VARIABLES, BUCKETS


def check_environment(around: Surroundings) -> Iterator[Finding]:
    """What replication needs from the agent's environment, which is not this shell's."""
    remote = around.config.remote_setting
    if around.config.send_log_file and remote.credentials_file:
        base = around.config_path.absolute().parent if around.config_path else Path.cwd()
        if problem := secret_problem(base / os.path.expanduser(remote.credentials_file), "password"):
            yield Finding("credentials", "fault", *problem)
    seen = around.agent_environment()
    if seen is None or not around.config.send_log_file:
        return
    if remote.password_env and remote.password_env not in seen:
        what = (
            f"the agent's environment has no {remote.password_env}, which REMOTE_SETTING.password_env names"
        )
        yield Finding("service-password", "fault", what, _set_for(around, remote.password_env))
    if remote.file_transfer_protocol in BUCKETS and not remote.credentials_file:
        for name in sorted(set(BUCKET_VARIABLES) & around.environment.keys() - seen.keys()):
            what = (
                f"this shell has {name}, with which the bucket may be opened; the agent's environment has not"
            )
            yield Finding("service-bucket", "warning", what, _set_for(around, name))
    own_key = remote.identity_file or remote.password or remote.password_env or remote.credentials_file
    if remote.file_transfer_protocol != "sftp" or own_key:
        return
    agent_socket = seen.get("SSH_AUTH_SOCK")
    if agent_socket and not os.path.exists(agent_socket):
        what = f"the agent knows an ssh-agent at {agent_socket}, which is gone (you logged out)"
        fix = "set REMOTE_SETTING.identity_file, or: rla-agent restart"
        yield Finding("service-ssh-agent", "warning", what, fix)
    elif not agent_socket and around.environment.get("SSH_AUTH_SOCK"):
        what = "this shell has an ssh-agent, the agent's environment has none"
        fix = "set REMOTE_SETTING.identity_file to a key without passphrase"
        yield Finding("service-ssh-agent", "warning", what, fix)


def secret_problem(path: Path, secret: str) -> tuple[str, str] | None:
    """What is wrong with a file that holds a secret, and what to do; None where nothing is."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return f"{path}: {error.strerror}", f"write the {secret} into {path}, mode 600"
    if mode & 0o077:
        return f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}"
    return None


def _set_for(around: Surroundings, variable: str) -> str:
    if around.unit is None:
        return f"export {variable} before: rla-agent restart"
    scope = "" if around.unit.system else "--user "
    return f"systemctl {scope}edit {around.unit.name}: [Service] EnvironmentFile=…; or use credentials_file"
