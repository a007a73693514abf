"""The run that recorders write to, set by `bind`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.job.arena_layout import ARENA_FOLDER
from rla_client.media.job_outbox import JobOutbox
from rla_client.stream import run_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from rla_client.media.pixel_sender import PixelSender

FIRST_VIDEO_BYTES = 64 << 20  # 300 frames of 256 x 256 RGB are 59 MB


@dataclass(frozen=True, slots=True)
class RecordingTarget:
    """The destination of the recorders.

    Attributes:
        results_dir: the run's item folder of the kind `results`; None if the run stores nothing.
        outbox: the run's stream; None: the caller makes all files.
        warn: gets the text of each warning.
        temporary: returns a temporary folder for the paths of files that are not made, as the run stores
            nothing.
        outside: a run that stores nothing still makes files in folders that the caller names.
        below: folders before each name: for a process that joined the run, its role.
    """

    results_dir: Path | None
    outbox: JobOutbox | None
    warn: Callable[[str], None]
    temporary: Callable[[], str] | None = None
    outside: bool = False
    below: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    target: RecordingTarget | None = None
    bound_at: float = 0.0
    warned: set[str] | None = None
    slots: PixelSender | None = None


recording_state = run_scope.PerScope(_State)
_expects_videos = False  # in this process


def bind(target: RecordingTarget | None, where: run_scope.Scope | None = None) -> None:
    """Set the recorders' run; called in the run's scope when it is opened and when it is closed."""
    state = recording_state.of(where or run_scope.current())
    state.target = target
    state.bound_at = time.monotonic()
    state.warned = set()
    if state.slots is not None and (target is None or target.outbox is not state.slots.outbox):
        state.slots.close()
        state.slots = None
    if target is not None and _expects_videos:
        _prepare_first(target)


def is_bound() -> bool:
    """Whether the recorders have an open run."""
    return recording_state().target is not None


def lose(kind: str, name: str, reason: str) -> None:
    """Warn that a file is lost, and count it among the run's losses."""
    warn_once(f"lost {kind}: {reason}", f"{kind} {name} is lost: {reason}")
    target = recording_state().target
    if target is not None and target.outbox is not None:
        target.outbox.lose(kind, name, reason)


def expect_videos() -> None:
    """Prepare memory for the first video in the background, now or when a run is opened."""
    global _expects_videos  # noqa: PLW0603 - of the process
    if not _expects_videos:
        _expects_videos = True
        if (target := recording_state().target) is not None:
            _prepare_first(target)


def _prepare_first(target: RecordingTarget) -> None:
    slots = pixel_sender(target.outbox)
    if slots is not None:
        slots.prepare_one([FIRST_VIDEO_BYTES >> shift for shift in range(5)])


def makes_nothing(results_dir: object = None) -> bool:
    """Whether the open run stores nothing, so that figures and media are neither drawn nor checked."""
    target = recording_state().target
    return target is not None and target.temporary is not None and (results_dir is None or not target.outside)


def warn_once(reason: str, text: str) -> None:
    """Warn, once for each reason and run."""
    state = recording_state()
    target, warned = state.target, state.warned
    if warned is not None:
        if reason in warned:
            return
        warned.add(reason)
    if target is not None:
        target.warn(text)
    else:
        import warnings  # noqa: PLC0415 - only without a run

        warnings.warn(text, RuntimeWarning, stacklevel=3)


def pixel_sender(outbox: JobOutbox | None) -> PixelSender | None:
    """The sender through shared memory for this process's stream; None without shared memory."""
    if outbox is None or outbox.stream_folder is None or not os.path.isdir(ARENA_FOLDER):
        return None
    state = recording_state()
    if state.slots is None or state.slots.outbox is not outbox:
        if outbox.agent_alive() and not outbox.agent_alive(memory=True):
            return None  # the agent runs outside of this container
        if state.slots is not None:
            state.slots.close()
        from rla_client.media.pixel_sender import PixelSender  # noqa: PLC0415 - only where there are pixels

        state.slots = PixelSender(outbox)
    return state.slots
