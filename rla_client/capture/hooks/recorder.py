"""Bridge from the hooks to the run, which the first metric opens."""

from __future__ import annotations

import atexit
import os

from ...contract.capture.notes import DROPPED, add_note
from . import gathered, processes, state
from .state import Part

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from rla_client.capture.session import Session

_session: Session | None = None
_session_pid = 0
_dropped = 0


def session() -> Session | None:
    """The session that records; None where this process takes no part."""
    global _session, _session_pid, _dropped  # noqa: PLW0603 - of the process
    pid = os.getpid()
    if _session_pid != pid:
        _session_pid, _session = pid, None
        worker = processes.is_worker()
        if worker:
            atexit.register(_tell_dropped)
        if not worker or os.environ.get("RLA_RUN"):
            from rla_client.capture.session import make_session

            _session = make_session(state, gathered, held, names, wandb_metrics, worker=worker)
    if _session is None:
        _dropped += 1
    return _session


def opened() -> Session | None:
    """The session of this process, if a metric has made it."""
    return _session if _session_pid == os.getpid() else None


def scalar(part: Part, tag: str, value: Any, step: Any, walltime: float | None) -> None:
    """Record one number."""
    found = session()
    if found is not None:
        found.scalar(part, tag, value, step, walltime)


def row(part: Part, values: Any, step: Any) -> None:
    """Record the numbers of a mapping."""
    found = session()
    if found is not None:
        found.row(part, values, step)


names: dict[str, str] = {}  # project: what another logger calls the program's


def event(part: Part, message: Any) -> None:
    """Record an event of TensorBoard; before the first metric it is held."""
    found = opened()
    if found is not None:
        found.event(part, message)
    elif len(held) < MAX_HELD:
        held.append((part, message))


MAX_HELD = 200
held: list[tuple[Part, Any]] = []  # events before the run is open
wandb_metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []  # calls of define_metric


def _tell_dropped() -> None:
    global _dropped  # noqa: PLW0603 - of the process
    if _dropped:
        add_note(DROPPED, str(_dropped))
        _dropped = 0
