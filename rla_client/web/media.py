"""What a run made beside its rows: pictures and films by name and time-step, checkpoints, system metrics.

A recorded file is called `<time-step>-<name>` (a few writers put a number behind the name instead). Files of
one name in one folder are one thing over time: the page shows them under a slider.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from contextlib import suppress
from typing import Any, BinaryIO

from rla_client.contract.checkpoints import PRUNED_FOLDER, pruned_files
from rla_client.contract.errors import DatabaseError
from rla_client.contract.files import held_folder, open_folder
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS
from rla_client.web.files import MAX_LISTED, SHOWN, asked_run, item_file, item_of, list_files
from rla_client.web.site import Site

MAX_GROUPS = 500
MAX_STEPS = 2000  # of one name; more are thinned out: a slider has no more places
SYSTEM_FILE = "system.csv"
SAMPLES = 1200  # of a long system.csv, evenly over the file
WHOLE_BYTES = 256 << 10  # a shorter one is read whole
MAX_ROW_BYTES = 2048
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


def checkpoints(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Checkpoint files by age: path, bytes, time, time-step, and where each is: `here`, or a master."""
    entry = asked_run(site, asked)
    found = list_files(site, entry, CHECKPOINT)
    rows: list[list[Any]] = [[*one, stepped(one.path)[0], "here"] for one in found.files]
    root, item = site.database(entry).data_root, item_of(entry, CHECKPOINT)
    with suppress(OSError):
        os.close(open_folder(root, f"{item}/{PRUNED_FOLDER}"))  # no link
        with held_folder(root, item) as folder:
            rows += [
                [note.name, note.size, note.mtime_ns / 1e9, stepped(note.name)[0], note.target]
                for note in pruned_files(folder)
            ]
    rows.sort(key=lambda row: (row[3] is not None, row[3] or 0, row[2]))
    return {
        "files": rows[-MAX_LISTED:],
        "count": len(rows),
        "cut": found.cut,
        "bytes": sum(row[1] for row in rows),
    }


def system(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Samples of what a run's processes used: column → numbers; of a long file evenly many.

    Empty where nothing was sampled (`sample_interval_s`).
    """
    try:
        with item_file(site, asked_run(site, asked), LOG, SYSTEM_FILE) as file:
            head, rows = _sampled(file)
    except (FileNotFoundError, DatabaseError):
        return {"columns": {}}
    wanted = [[_float(cell) for cell in row.split(",")] for row in rows]
    wanted = [row for row in wanted if len(row) == len(head) and row[0] is not None]
    columns = {name: [row[place] for row in wanted] for place, name in enumerate(head)}
    return {"columns": {name: cells for name, cells in columns.items() if any(c is not None for c in cells)}}


def _sampled(file: BinaryIO) -> tuple[list[str], list[str]]:
    """The header's names, and whole lines."""
    size = os.fstat(file.fileno()).st_size
    line = file.readline(MAX_ROW_BYTES).decode("utf-8", "replace")
    begin = file.tell()
    if size <= WHOLE_BYTES:
        lines = file.read(WHOLE_BYTES).decode("utf-8", "replace").split("\n")[:-1]
    else:
        lines = []
        for place in range(SAMPLES):
            file.seek(begin + (size - begin - MAX_ROW_BYTES) * place // (SAMPLES - 1))
            whole = file.read(MAX_ROW_BYTES).split(b"\n")
            if len(whole) > 2:  # noqa: PLR2004 - the end of one line, a whole one, the beginning of a third
                lines.append(whole[-2 if place == SAMPLES - 1 else 1].decode("utf-8", "replace"))
        lines = list(dict.fromkeys(lines))
    return line.strip().split(","), lines


def _float(cell: str) -> float | None:
    with suppress(ValueError):
        found = float(cell)
        return found if math.isfinite(found) else None
    return None
