"""`rla-agent doctor`: looks at everything that the agent depends on, changes nothing.

Each check yields findings; a finding says what is wrong and how to fix it. Levels: `fault` (does
not work), `warning` (will hurt one day), `note` (good to know; the exit code stays 0). Identifiers
of findings are stable; docs/how-to/doctor.md lists them.
"""

from __future__ import annotations

from rla_agent.service.doctor.findings import LEVELS, Finding, Surroundings
from rla_agent.service.doctor.places import PLACE_CHECKS
from rla_agent.service.doctor.service import ALERT_CHECKS, SERVICE_CHECKS
from rla_client.contract.textformat import indented


def examine(surroundings: Surroundings) -> list[Finding]:
    """All findings, the worst first."""
    findings: list[Finding] = []
    for check in (*PLACE_CHECKS, *SERVICE_CHECKS, *ALERT_CHECKS):
        findings += check(surroundings)
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
