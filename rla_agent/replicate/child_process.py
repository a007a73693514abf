"""Termination of the agent's child processes."""

from __future__ import annotations

import logging
import subprocess
from contextlib import suppress
from typing import Any, Final

KILL_AFTER_S: Final = 5.0
_log = logging.getLogger("rla_agent.replicate.child_process")


def end_child(process: subprocess.Popen[Any], what: str, timeout: float) -> None:
    """Wait at most `timeout` seconds for a process that was asked to end, then kill it; `what`: its name."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
        return
    process.kill()
    try:
        process.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, and dies once its call returns
        _log.warning("%s (pid %d) does not exit; the agent stops without it", what, process.pid)
