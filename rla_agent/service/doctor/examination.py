"""Examination of the agent's surroundings for `rla-agent doctor`.

Nothing is changed. Each check yields findings; a finding says what is wrong and how to fix it. Levels:
`fault` (does not work), `warning` (will hurt one day), `note` (good to know; the exit code stays 0).
Identifiers of findings are stable; docs/how-to/doctor.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.agent import check_problems, check_socket, check_stopped
from rla_agent.service.doctor.agent_folders import check_folders, check_owners
from rla_agent.service.doctor.alert_channels import check_alerts
from rla_agent.service.doctor.clock import check_clock
from rla_agent.service.doctor.config import check_config
from rla_agent.service.doctor.data_roots import check_roots
from rla_agent.service.doctor.database import check_database
from rla_agent.service.doctor.environment import check_environment
from rla_agent.service.doctor.interpreters import check_interpreters
from rla_agent.service.doctor.limits import check_limits
from rla_agent.service.doctor.logout import check_shared_memory_at_logout
from rla_agent.service.doctor.spool import check_other_states, check_spool
from rla_agent.service.doctor.state_disk import check_state_disk
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.doctor.units import check_unit
from rla_agent.service.doctor.versions import check_versions
from rla_client.contract.process.system import on_linux, why_not_recorded
from rla_client.contract.text.terminal_text import indented

LEVELS = ("fault", "warning", "note")


def examine(surroundings: Surroundings) -> list[Finding]:
    """All findings, the worst first. On another system than Linux that alone."""
    if not on_linux():
        fix = (
            "train on Linux (Windows: in WSL); here `rla` shows and plots databases, and runs are not stored"
        )
        return [Finding("system", "fault", why_not_recorded(), fix)]
    findings = [finding for check in CHECKS for finding in check(surroundings)]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def report(findings: list[Finding], width: int) -> str:
    """The findings for people, in lines of `width` columns."""
    if not findings:
        return "everything is as it should be"
    return "\n".join(
        indented(text, width, first, "    ")
        for finding in findings
        for first, text in ((f"{finding.level}: ", finding.what), ("    ", finding.fix))
    )


CHECKS: tuple[Callable[[Surroundings], Iterable[Finding]], ...] = (
    check_config,
    check_folders,
    check_interpreters,
    check_owners,
    check_state_disk,
    check_roots,
    check_socket,
    check_spool,
    check_other_states,
    check_database,
    check_stopped,
    check_problems,
    check_versions,
    check_limits,
    check_clock,
    check_unit,
    check_environment,
    check_shared_memory_at_logout,
    check_alerts,
)
