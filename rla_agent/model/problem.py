"""Problems of the agent with their fixes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

OTHER_FOLDER = (
    "run an agent where the training process runs, or mount the folder under the same path there; "
    "if it was deleted and recreated: rla-agent forget"
)
NOT_HERE = (
    "mount it, or for a system service: rla-agent install-service --system --data-root DIR; then: "
    "rla-agent restart. If it moved: rla-agent drain --data-root OLD=NEW; if it will not come back: "
    "rla-agent forget"
)
WITHOUT_LIMITS = "start it from a shell without that limit, or as a service: rla-agent restart"
FIXES = (
    (
        ("internal error",),
        "please report it with the traceback (rla-agent logs); to try again: rla-agent restart",
    ),
    (
        ("no space", "quota", "is full", "mib free"),
        "free space on that disk, or inodes (df -i); rows wait in the spool until then",
    ),
    (("file too large",), WITHOUT_LIMITS),
    (("read-only",), "remount it writable, or name it: rla-agent install-service --system --data-root DIR"),
    (("permission", "not permitted"), "give this user the right to write there"),
    (("input/output error",), "check that disk (dmesg, smartctl); rows wait in the spool"),
    (("another folder here",), OTHER_FOLDER),
    (("is not here",), NOT_HERE),
    (("version",), "update rla-agent, then: rla-agent restart"),
    (("opening frame",), "rla-agent doctor names the folder; move it out of the spool"),
)
WITHOUT_AGENT = "rla-agent start --detach, or once: rla-agent drain"
OTHERWISE = "see: rla-agent logs"


def problem(text: str) -> dict[str, str]:
    """A fault and what to do about it."""
    low = text.lower()
    fix = next((fix for needles, fix in FIXES if any(needle in low for needle in needles)), OTHERWISE)
    return {"what": text, "fix": fix}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, warning or note.

    Attributes:
        name: stable identifier.
        level: fault, warning or note.
        what: what is wrong.
        fix: what to do.
    """

    name: str
    level: str
    what: str
    fix: str
