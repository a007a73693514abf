"""Index of a table's runs by `run_id`.

It avoids reading the run.json of every run: `<data root>/log/<table>/.rla-run-ids.json` has
`{day: {name: run_id}}`. A run's id never changes, so an entry is never out of date; where the file is missing
or broken, or cannot be written, the runs are read again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.bounded_parsing import parse_json

NOTES = ".rla-run-ids.json"
MAX_NOTES_BYTES = 64 << 20  # of a million runs
UNNOTED_MAX = 200  # unindexed runs that are read each time before the index is rewritten: some 5 ms
_RUN_KEY = re.compile(rb'"run_key":\s*("(?:[^"\\]|\\.)*")')
_LEVELS = (re.compile(r"\d{4}\Z"), re.compile(r"\d\d\Z"), re.compile(r"\d\d\Z"))
Notes = dict[str, dict[str, str]]


def newest_first(table: Path, run_id: str) -> Iterator[RunIndex]:
    """The runs of a table with this id, by their record dates; also damaged ones that may have it.

    Args:
        table: its folder below `log`.
        run_id: the user's name of a run.
    """
    notes, unnoted = _read(table), 0
    try:
        for day in _days(table, _LEVELS):
            known = notes.setdefault(day, {})
            for name in _names(table / day):
                noted, whole = known.get(name), True
                if not isinstance(noted, str):
                    found = _run_id(f"{table}/{day}/{name}/run.json")
                    if found is None:
                        continue
                    noted, whole = found
                    if whole:
                        known[name], unnoted = noted, unnoted + 1
                bears = noted == run_id or not (whole or noted)
                index = RunIndex.parse(f"{day}/{name}") if bears else None
                if index is not None:
                    yield index
    finally:
        if unnoted > UNNOTED_MAX:
            with suppress(OSError):
                content = json.dumps(notes, separators=(",", ":"))
                write_atomic(table / NOTES, content.encode(), durable=False)


def _days(folder: Path, levels: tuple[re.Pattern[str], ...], above: str = "") -> Iterator[str]:
    """Folders of days, newest first, as `YYYY/MM/DD`."""
    for name in _names(folder):
        if levels[0].match(name) is None:
            continue
        if len(levels) == 1:
            yield f"{above}{name}"
        else:
            yield from _days(folder / name, levels[1:], f"{above}{name}/")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []


def _run_id(path: str) -> tuple[str, bool] | None:
    """The id in a run.json (empty where it has none), and whether the file is intact; None without a file."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, MAX_RUN_FILE_BYTES)
        finally:
            os.close(descriptor)
        found = _RUN_KEY.findall(content)
        with suppress(ValueError):
            return str(json.loads(found[-1])) if found else "", content.rstrip().endswith(b"}")
        return "", False
    return None


def _read(table: Path) -> Notes:
    with suppress(OSError, ValueError):
        content = parse_json(read_small(table / NOTES, MAX_NOTES_BYTES))
        if isinstance(content, dict):
            return {str(day): names for day, names in content.items() if isinstance(names, dict)}
    return {}
