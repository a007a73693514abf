"""Stop signals of programs.

Shells and schedulers exit with 128 + n after signal n, and so do programs that catch one and exit. A program
that was told to stop and ended has not finished, whatever it did before exiting: its run is *interrupted*. A
status that names a crash, or SIGKILL of a child process, is a failure.
"""

from __future__ import annotations

import signal
from typing import Final

STOPS: Final = frozenset((
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGXCPU,
))  # fmt: skip
"""Signals by which people, terminals, schedulers and limits tell a program to stop. USR1 and USR2 are what
Slurm's --signal and preemption are often set to; some programs take them for other things."""
FOR_ANYTHING: Final = frozenset((signal.SIGUSR1, signal.SIGUSR2))
ABOVE: Final = 128  # of exit statuses that name a signal


def signal_of(status: object) -> signal.Signals | None:
    """The signal that an exit status names; None where it names none."""
    if not isinstance(status, int) or isinstance(status, bool) or status <= ABOVE:
        return None
    try:
        return signal.Signals(status - ABOVE)
    except ValueError:
        return None


def stopped_by(status: object) -> signal.Signals | None:
    """The stop signal that an exit status names; None for other statuses."""
    found = signal_of(status)
    return found if found in STOPS else None
