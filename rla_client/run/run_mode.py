"""Environment variables of a process's run mode."""

from __future__ import annotations

import os

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.system import on_linux, why_not_recorded

RUN_VARIABLE = "RLA_RUN"
WRITER_VARIABLE = "RLA_WRITER_FOLDER"  # log_dir of the run's first SummaryWriter, for its workers
MODE_VARIABLE = "RLA_MODE"
MODES = ("", "online", "offline", "disabled")


def disabled() -> bool:
    """Whether every call works, with no file and no agent: RLA_MODE=disabled, or no Linux.

    Raises:
        ArgumentError: RLA_MODE is none of disabled, offline, online.
    """
    if mode() not in MODES:
        raise ArgumentError(
            f"{MODE_VARIABLE} is disabled, offline or online; got {os.environ[MODE_VARIABLE]!r}"
        )
    return mode() == "disabled" or not on_linux()


def why_disabled() -> str:
    """What makes `disabled` True."""
    return "RLA_MODE=disabled" if mode() == "disabled" else why_not_recorded()


def mode() -> str:
    """RLA_MODE: one of MODES, or what somebody wrote instead."""
    return os.environ.get(MODE_VARIABLE, "").lower()
