"""Forwarding of other writers' events into the open run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rla_client import logger
from rla_client.media.row_media import safe_name
from rla_client.run.record.scalar_rows import scalar_rows
from rla_client.run.record.shown_event import shown_event
from rla_client.stream.summary_scalars import summary_scalars


def forward_tensorboard(is_open: Callable[[], bool]) -> None:
    """Send events of torch's and tensorboardX's file writers to the open run from now on."""
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        _forward(module, "FileWriter", "add_event", lambda original: (original, _send_event), is_open)


def forward_films(is_open: Callable[[], bool]) -> None:
    """Send films of gymnasium's RecordVideo to the open run from now on."""
    _forward("gymnasium.wrappers", "RecordVideo", "stop_recording", lambda stop: (_send_film, stop), is_open)


def _forward(module: str, owner: str, method: str, calls: Any, is_open: Callable[[], bool]) -> None:
    """Replace a method, if it exists: while a run is open, it makes several calls with its arguments."""
    try:
        kind = getattr(importlib.import_module(module), owner)
        original = getattr(kind, method)
    except (ImportError, AttributeError):
        return
    if hasattr(original, "rla_forwards"):
        return

    def forward(*args: Any, **kwargs: Any) -> None:
        for call in calls(original) if is_open() else (original,):
            call(*args, **kwargs)

    forward.rla_forwards = True  # type: ignore[attr-defined]
    setattr(kind, method, forward)


def _send_event(_: Any, event: Any, *__: Any, **___: Any) -> None:
    current = logger.get_current()
    current.event(shown_event(event, current), event.wall_time, event.step)
    rows = scalar_rows(current)
    if rows is not None and event.HasField("summary"):
        for tag, value in summary_scalars(event.summary):
            rows.add(tag, value, event.step, event.wall_time)


def _send_film(recorder: Any) -> None:
    from rla_client.media.video_recorder import VideoRecorder  # noqa: PLC0415 - imports numpy

    if recorder.recorded_frames:
        fps = float(getattr(recorder, "frames_per_sec", None) or 30)
        name = f"videos/{safe_name(recorder._video_name)}.mp4"  # noqa: SLF001 - gymnasium's file name
        VideoRecorder.save(name, list(recorder.recorded_frames), fps=fps, cover=True)
