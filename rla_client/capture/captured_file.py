"""`captured.json` in a run's log folder.

It lists what was captured from which library:

{"sources": {"tensorboard": {"values": 72}, "tyro": {"parameters": 28}},
 "skipped": {"tensorboard": {"image": [1, 28311552]}}, "off": {"wandb": "TypeError: …"},
 "errors": {"wandb": ["TypeError: …"]}, "saved": {"/home/me/model.pt": 1000}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rla_client.capture.hooks.state import CapturePart

CAPTURED_NAME = "captured.json"


def content(
    parts: Iterable[CapturePart], parameters: Mapping[str, int], saved: Mapping[str, float]
) -> dict[str, Any]:
    """The content of the file.

    Args:
        parts: of the capture in this process.
        parameters: origin → number of hyper-parameters.
        saved: path of a file that the program saved → time-step.
    """
    parts = list(parts)
    sources: dict[str, dict[str, int]] = {one.name: dict(one.counts) for one in parts if one.counts}
    for origin, number in parameters.items():
        if number:
            sources.setdefault(origin, {})["parameters"] = number
    return {
        "sources": sources,
        "skipped": {
            one.name: {kind: list(n) for kind, n in one.skipped.items()} for one in parts if one.skipped
        },
        "off": {one.name: one.errors[-1] for one in parts if not one.on and one.errors},
        "errors": {one.name: one.errors for one in parts if one.errors},
        "saved": dict(saved),
    }


def as_bytes(found: Mapping[str, Any]) -> bytes:
    """The file's bytes."""
    return json.dumps(found, indent=1).encode()
