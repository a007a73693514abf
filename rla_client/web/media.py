"""Media of a run by name, over time-steps.

A recorded file is called `<time-step>-<name>` (a few writers put a number behind the name instead). Files of
one name in one folder are one thing over time: the page shows them under a slider.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import Any

from rla_client.contract.layout import OTHER_RESULTS
from rla_client.web.file_download import SHOWN
from rla_client.web.item_files import MAX_LISTED, asked_run, list_files
from rla_client.web.run_registry import Site

MAX_GROUPS = 500
MAX_STEPS = 2000  # of one name; more are thinned out: a slider has no more places
_BEFORE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)-(.+)", re.DOTALL)
_BEHIND = re.compile(r"(.+?)[-_](\d{1,15})", re.DOTALL)
Step = float | None
Group = list[tuple[Step, str]]


def media(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Pictures, films and sounds of a run by name, each with its time-steps; and its other result files."""
    found = list_files(site, asked_run(site, asked), OTHER_RESULTS)
    shown = [one.path for one in found.files if _kind(one.path)]
    others = [one for one in found.files if not _kind(one.path)]
    groups = grouped(shown)
    names = sorted(groups, key=lambda name: (name.startswith(("abandoned-", "before-fork")), name))
    return {
        "groups": [
            {"name": name, "kind": _kind(name), "count": len(groups[name]), "files": _thinned(groups[name])}
            for name in names[:MAX_GROUPS]
        ],
        "names": len(names),
        "others": others[:MAX_LISTED],
        "other_count": len(others),
        "count": len(found.files),
        "cut": found.cut,
        "passed": found.passed,
    }


def _kind(path: str) -> str:
    """image, video, audio; empty for others."""
    return SHOWN.get(os.path.splitext(path)[1].lower(), "").partition("/")[0]


def _thinned(group: Group) -> Group:
    """At most `MAX_STEPS` of them, the last among them."""
    if len(group) <= MAX_STEPS:
        return group
    return [group[place * (len(group) - 1) // (MAX_STEPS - 1)] for place in range(MAX_STEPS)]


def grouped(paths: list[str]) -> dict[str, Group]:
    """Paths by their name without the time-step: [(time-step, path), …] in its order.

    A film of an episode is `<time-step>-<name>-<episode>`: such names are one where no time-step comes twice.
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


def stepped(path: str) -> tuple[Step, str]:
    """The time-step that a file's name says, and its path without it."""
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
