"""Text without terminal escapes."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def readable(data: bytes) -> str:
    """A text without terminal escapes and control characters; of a progress bar, its last state."""
    shown = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    if "\r" in shown:
        shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", shown)
