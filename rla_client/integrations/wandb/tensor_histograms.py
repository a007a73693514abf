"""Histograms of watched tensors, kept as events only."""

from __future__ import annotations

from typing import Any

from rla_client import logger
from rla_client.adapter import Joined
from rla_client.contract.errors import RlaError
from rla_client.media.logged_media import histogram
from rla_client.run.current_logger import warn
from rla_client.run.record.media_events import send_media_event
from rla_client.stream.clock import time_step_holder

_reported: set[str] = set()  # names of histograms that were not kept


def watcher(name: str, parameter: Any, what: str | None, every: int, joined: Joined) -> Any:
    """A gradient hook of a parameter that sends histograms every `every` calls.

    Args:
        name: of the histograms, after `gradients` or `parameters`.
        parameter: the watched tensor.
        what: gradients, parameters or all.
        every: number of calls.
        joined: the run.
    """
    calls = 0

    def look(gradient: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % every == 0:
            with joined.active():  # torch has threads of its own for gradients
                for group, tensor in (("gradients", gradient), ("parameters", parameter)):
                    if what in {group, "all"}:
                        counted = histogram.Histogram(tensor)
                        send_histogram(f"{group}{name}", counted, time_step_holder.get_time())

    return look


def send_histogram(name: str, value: histogram.Histogram, step: float) -> None:
    """Send a histogram as an event only, as scripts log one for each step, which would be as many files."""
    current = logger.get_current()
    if "tensorboard" not in current.sinks:
        return
    try:
        value.check()
        send_media_event(current, name, value, int(step))
    except RlaError as error:
        if name not in _reported:
            _reported.add(name)
            warn(f"wandb: the histogram {name} was not kept: {error}")
