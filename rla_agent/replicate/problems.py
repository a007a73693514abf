"""Problems of replication that a person must solve."""

from __future__ import annotations

from typing import Any, Final

from rla_agent.replicate.status_text import again_text, shown_target
from rla_client.contract.text.terminal_text import printable

_LOCKED: Final = "database is locked"  # by a person who inspects it, for a moment


def attention(status: dict[str, Any]) -> list[dict[str, str]]:
    """The problems as `what` and `fix`, for the list in `rla-agent status`."""
    problems = []
    for target in status["targets"]:
        why = target.get("reason") or target.get("problem") or ""
        if why:
            blocked = target.get("health") == "blocked"
            name = shown_target(target["target"])
            what = f"replication to {name} {'has stopped' if blocked else 'is held up'}: {why}"
            fix = target.get("fix") or ("" if blocked else "it is retried automatically")
            again = again_text(target) if blocked else ""
            problems.append({"what": what, "fix": "; ".join(filter(None, (fix, again)))})
    reasons: dict[tuple[str, str], list[str]] = {}
    for parked in status["parked"]:
        reasons.setdefault((parked["reason"], parked["fix"]), []).append(parked["path"])
    for (reason, fix), paths in reasons.items():
        what = f"not replicated: {printable(paths[0])}" + (f" and {len(paths) - 1} more" if paths[1:] else "")
        problems.append({"what": f"{what}: {reason}", "fix": fix or "rla-agent replicate retry"})
    problems += [
        {"what": f"not replicated: {text}", "fix": "fix that file; it is read again automatically"}
        for text in status.get("problems", {}).values()
    ]
    if lost := status.get("lost"):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        what = f"the master has lost {printable(lost[0])}{more}, and it is no more here"
        problems.append(
            {"what": what, "fix": "put back a copy if you have one; then: rla-agent replicate retry"}
        )
    if "error" in status:
        problems.append({"what": status["error"], "fix": "see: rla-agent logs"})
    return problems


def stopped(status: dict[str, Any]) -> dict[str, str]:
    """What is blocked until somebody acts, for alerts: target, `files` or `status` → what and why."""
    found = {}
    for target in status["targets"]:
        if target.get("health") == "blocked":
            lines = [target.get("reason") or "has stopped", target.get("fix") or ""]
            found[str(target["target"])] = "\n".join(filter(None, lines))
    if status["parked_files"]:
        first = status["parked"][0]
        lines = [
            f"{status['parked_files']} files do not go to the master, the first: {first['path']}",
            first["reason"],
            first["fix"],
            "see: rla-agent replicate status",
        ]
        found["files"] = "\n".join(filter(None, lines))
    if "error" in status and _LOCKED not in status["error"]:
        found["status"] = f"{status['error']}\nsee: rla-agent logs"
    return found
