"""Marker files that commands leave for the worker.

`paused` lasts until `resume` deletes it; the worker itself deletes `retry`.
"""

from __future__ import annotations

from pathlib import Path

from rla_agent.replicate.registry import folder


def pause(state: Path) -> None:
    """Send nothing until `resume`."""
    (folder(state) / "paused").touch()


def resume(state: Path) -> None:
    """Undo `pause`."""
    (folder(state) / "paused").unlink(missing_ok=True)


def paused(state: Path) -> bool:
    """Whether `pause` was called."""
    return (state / "replicate" / "paused").exists()


def ask_retry(state: Path) -> None:
    """Ask the worker to retry everything that is parked or blocked."""
    (folder(state) / "retry").touch()


def take_retry(state: Path) -> bool:
    """Whether `ask_retry` was called since the last time."""
    try:
        (state / "replicate" / "retry").unlink()
    except FileNotFoundError:
        return False
    return True
