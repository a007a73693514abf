"""Results of a run by name, over time-steps.

A recorded file is called `<time-step>-<name>`; a few writers append the number to the name instead. Files
of one name in one folder show one thing over time.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence

_BEFORE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)-(.+)", re.DOTALL)
_BEHIND = re.compile(r"(.+?)[-_](\d{1,15})", re.DOTALL)
Step = float | None
Group = list[tuple[Step, str]]


def grouped(paths: Sequence[str]) -> dict[str, Group]:
    """Paths by their name without the time-step: [(time-step, path), …], by time-step.

    A film of an episode is `<time-step>-<name>-<episode>`: such names are merged if no time-step occurs
    twice.
    """
    first: defaultdict[str, Group] = defaultdict(list)
    for path in paths:
        step, name = stepped(path)
        first[name].append((step, path))
    merged: defaultdict[str, list[str]] = defaultdict(list)
    for name, group in first.items():
        if len(group) == 1 and group[0][0] is not None and (shorter := _without_number(name)):
            merged[shorter].append(name)
    for shorter, names in merged.items():
        together = [one for name in names for one in first[name]]
        if len(names) > 1 and shorter not in first and len({step for step, _ in together}) == len(together):
            for name in names:
                del first[name]
            first[shorter] = together
    return {
        name: sorted(group, key=lambda one: (one[0] is not None, one[0] or 0, one[1]))
        for name, group in first.items()
    }


def in_order(paths: Sequence[str]) -> list[str]:
    """Paths sorted by folder, name, and then time-step as a number: 9 comes before 10."""

    def place(path: str) -> tuple[str, bool, float, str]:
        step, name = stepped(path)
        return name, step is not None, step or 0.0, path

    return sorted(paths, key=place)


def stepped(path: str) -> tuple[Step, str]:
    """The time-step in a file's name, and its path without it."""
    folder, slash, name = path.rpartition("/")
    match = _BEFORE.fullmatch(name)
    if match is not None and os.path.splitext(match[2])[0]:
        return float(match[1]), f"{folder}{slash}{match[2]}"
    stem, suffix = os.path.splitext(name)
    behind = _BEHIND.fullmatch(stem)
    if behind is not None:
        return float(behind[2]), f"{folder}{slash}{behind[1]}{suffix}"
    return None, path


def _without_number(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    match = _BEHIND.fullmatch(stem)
    return f"{match[1]}{suffix}" if match else ""
