"""Bridge from the hooks to the run.

The first metric opens the run.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from ...contract.capture.notes import DROPPED, add_note
from . import processes, seen_parameters, state
from .state import CapturePart

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from rla_client.capture.session import CaptureSession

_session: CaptureSession | None = None
_begun = False  # this process has decided whether it has a session
_dropped = 0  # values of a worker without a session
_lock = allocate_lock()  # never held during an import


def session() -> CaptureSession | None:
    """The session of this process, created on first use; None if this process does not record."""
    global _dropped  # noqa: PLW0603 - of the process
    if not _begun:
        _begin()
    if _session is None:
        _dropped += 1
    return _session


def _begin() -> None:
    """Create the session; if two threads do so, the first one's session is used."""
    global _session, _begun, _dropped
    made, worker = None, processes.is_worker()
    if not worker or os.environ.get("RLA_RUN"):
        from rla_client.capture.session import make_session

        made = make_session(state, seen_parameters, held, names, wandb_metrics, worker=worker)
    with _lock:
        if _begun:
            return
        _session, _begun, _dropped = made, True, 0
    if worker and made is None:
        processes.at_exit(_tell_dropped)


def _after_fork_in_child() -> None:
    global _session, _begun, _lock  # noqa: PLW0603 - of the process
    _session, _begun = None, False
    _lock = allocate_lock()  # the parent's may be held for ever


os.register_at_fork(after_in_child=_after_fork_in_child)


def opened() -> CaptureSession | None:
    """The session of this process, if it exists already."""
    return _session


def scalar(part: CapturePart, tag: str, value: Any, step: Any, walltime: float | None) -> None:
    """Record one number."""
    found = _session or session()
    if found is not None:
        found.scalar(part, tag, value, step, walltime)


def row(part: CapturePart, values: Any, step: Any) -> None:
    """Record the numbers of a mapping."""
    found = session()
    if found is not None:
        found.row(part, values, step)


names: dict[str, str] = {}  # "project": the name of the project in another logger


def event(part: CapturePart, message: Any) -> None:
    """Record an event of TensorBoard; events before the first metric are held back."""
    found = opened()
    if found is not None:
        found.event(part, message)
    elif len(held) < MAX_HELD:
        held.append((part, message))


MAX_HELD = 200
held: list[tuple[CapturePart, Any]] = []  # events before the run is open
wandb_metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []  # calls of define_metric


def _tell_dropped() -> None:
    global _dropped  # noqa: PLW0603 - of the process
    if _dropped:
        add_note(DROPPED, str(_dropped))
        _dropped = 0
