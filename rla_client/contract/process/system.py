"""Check of the operating system."""

from __future__ import annotations

import sys


def on_linux() -> bool:
    """Whether the agent can run here. Elsewhere databases are read, and programs run without a record."""
    return sys.platform == "linux"


def why_not_recorded() -> str:
    """The message where `on_linux` is False."""
    return f"rla-agent records on Linux, and this is {sys.platform}"
