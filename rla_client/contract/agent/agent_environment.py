"""Environment of a started agent.

It has variables and limits, and depends on the container.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from rla_client.contract.agent.agent_process import LEAST_FILES
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE

OWNER_VARIABLE = "RLA_LAUNCH_OWNER"  # set by `rla-agent run`: an agent that its command starts ends with it
_KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
    "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", STATE_VARIABLE, RUNTIME_VARIABLE,
    OWNER_VARIABLE,
)  # fmt: skip


def tight_limits() -> list[str]:
    """Hard limits of this process that would keep an agent from writing all outputs; it raises soft ones."""
    found = []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        found.append(f"it may open {files} files (ulimit -n), and needs {LEAST_FILES}")
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if size != resource.RLIM_INFINITY:
        found.append(f"its files end at {size} bytes (ulimit -f); what goes beyond waits in the spool")
    return found


def clean_environment() -> dict[str, str]:
    """The few variables that a service needs, without those of the training job."""
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    package_parent = Path(__file__).resolve().parents[3]
    if package_parent.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = str(package_parent)
    return environment


def shares_our_life() -> bool:
    """Whether the agent would end together with this process: a container or a batch job."""
    if any(
        name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")
    ):
        return True
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")
