"""Samples of a run on the page.

The index of a run's samples stays in memory and follows its files; a list that is asked for page by page is
filtered and sorted once.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.samples.sample_query import check_column, containing, matching, ordered
from rla_client.database.samples.sample_text import cell_text
from rla_client.database.samples.word_diff import word_diff
from rla_client.database.tree.chains import chain_of
from rla_client.web.item_files import asked_run
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import number
from rla_client.web.run_registry import PageRun, Site

KEPT_RUNS = 8  # whose index stays in memory
KEPT_LISTS = 8  # of each, in one order
PAGE_ROWS = 200  # of a list at most
WHOLE_ROWS = 64  # that are sent whole at once
WHOLE_CHARS = 4 << 20
MAX_STEPS = 5000  # of a slider
BINS = 24
SEARCH_S = 0.4  # of one look of a search
MAX_FOUND = 5000
STORY_STEPS = 200
_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Kept:
    """The index of one run, with the lists that were asked for last."""

    index: SampleIndex
    lock: threading.Lock = field(default_factory=threading.Lock)
    lists: OrderedDict[_Key, list[int]] = field(default_factory=OrderedDict)
    changes: int = 0


class SampleIndexes:
    """Indices of the runs that were looked at last. May be used from several threads."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[int, str, str], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, site: Site, entry: PageRun) -> _Kept:
        """That of a run."""
        table, index = entry.record.table, entry.record.index
        key = (entry.place, table, index)
        with self._lock:
            kept = self._runs.get(key)
            if kept is None:
                root = site.database(entry).data_root
                kept = self._runs[key] = _Kept(SampleIndex(root, table, chain_of(root, table, index)))
            self._runs.move_to_end(key)
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
        return kept


_indexes: dict[str, SampleIndexes] = {}  # by the server's `boot`


def _kept(site: Site, asked: dict[str, Any]) -> _Kept:
    return _indexes.setdefault(site.boot, SampleIndexes()).of(site, asked_run(site, asked))


def _refreshed(kept: _Kept) -> SampleIndex:
    """The index as it is now; its lock is held."""
    if kept.index.refresh():
        kept.lists.clear()
        kept.changes += 1
    return kept.index


def listing(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """A page of the samples that match, with what can be chosen among them."""
    kept = _kept(site, asked)
    with kept.lock:
        index = _refreshed(kept)
        rows = _rows(kept, asked)
        offset = int(number(asked, "offset", 0))
        limit = min(int(number(asked, "limit", 100)), PAGE_ROWS)
        names = list(index.columns)
        shown = rows[max(offset, 0) : max(offset, 0) + max(limit, 0)]
        of = str(asked.get("of") or "reward")
        return {
            "changes": kept.changes,
            "count": len(index),
            "matching": len(rows),
            "left_out": sum(index.left_out.values()),
            "unread": list(map(str, index.unread)),
            "columns": [[name, _is_number(index.columns[name])] for name in names],
            "names": sorted(set(map(str, index.columns.get("name", ())))),
            "steps": _thinned(sorted(set(index.columns.get("step", ())))),
            "rows": [[row, *(sent(index.columns[name][row]) for name in names)] for row in shown],
            "histogram": _histogram(index, _rows(kept, {**asked, "range": None}), of) if limit > 0 else None,
        }


def _rows(kept: _Kept, asked: dict[str, Any]) -> list[int]:
    """What matches, in order; kept until there are more samples."""
    where, group, name, sort = (str(asked.get(key) or "") for key in ("where", "group", "name", "sort"))
    step, limits, among = asked.get("step"), asked.get("range"), asked.get("among")
    of = str(asked.get("of") or "reward")
    key = (where, group, name, sort, bool(asked.get("down")), json.dumps([step, limits, among]), of)
    if (known := kept.lists.get(key)) is not None:
        kept.lists.move_to_end(key)
        return known
    index = kept.index
    steps = None if step is None else (number(asked, "step", 0),) * 2
    rows = matching(index, where or None, steps=steps, group=group or None, name=name or None)
    if limits is not None and len(index):
        low, high = _limits(limits)
        column = index.columns[check_column(index, of)]
        rows = [row for row in rows if _within(column[row], low, high)]
    if among is not None:
        chosen = set(_numbers(among))
        rows = [row for row in rows if row in chosen]
    if sort and len(index):
        rows = ordered(index, rows, sort, descending=bool(asked.get("down")))
    kept.lists[key] = rows
    while len(kept.lists) > KEPT_LISTS:
        kept.lists.popitem(last=False)
    return rows


def _numbers(asked: object) -> list[int]:
    if not isinstance(asked, list) or len(asked) > MAX_FOUND or any(type(one) is not int for one in asked):
        raise ArgumentError(f"rows of samples are at most {MAX_FOUND} whole numbers")
    return asked


def _limits(asked: object) -> tuple[float, float]:
    if (
        not isinstance(asked, list)
        or len(asked) != 2  # noqa: PLR2004 - low and high
        or not all(isinstance(one, int | float) and math.isfinite(one) for one in asked)
    ):
        raise ArgumentError("range must be [low, high]")
    return float(asked[0]), float(asked[1])


def _within(value: object, low: float, high: float) -> bool:
    """Whether a value lies in a bin: without its upper end, unless it has one value."""
    return isinstance(value, int | float) and (low <= value < high or low == value == high)


def _is_number(column: Sequence[object]) -> bool:
    return any(isinstance(value, int | float) for value in column[:1000]) and not any(
        isinstance(value, str) for value in column[:1000]
    )


def _thinned(steps: list[Any]) -> list[Any]:
    every = -(-len(steps) // MAX_STEPS) or 1
    return [sent(step) for step in (steps[::every] if every == 1 else [*steps[:-1:every], steps[-1]])]


def _histogram(index: SampleIndex, rows: Sequence[int], of: str) -> dict[str, Any] | None:
    """How often which values of a column are; None where it has no numbers."""
    column = index.columns.get(of)
    if column is None:
        return None
    values = [
        float(value)
        for value in (column[row] for row in rows)
        if isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1e300  # noqa: PLR2004 - of doubles
    ]
    if not values:
        return None
    low, high = min(values), max(values)
    distinct = sorted(set(values[:10_000]))
    if len(distinct) <= BINS and len(set(values)) == len(distinct):  # rewards of 0 and 1
        counts = dict.fromkeys(distinct, 0)
        for value in values:
            counts[value] += 1
        return {"of": of, "bins": [[value, value, count] for value, count in counts.items()]}
    high = math.nextafter(high, math.inf)  # a bin is without its upper end
    width = (high - low) / BINS
    tally = [0] * BINS
    for value in values:
        tally[min(BINS - 1, int((value - low) / width))] += 1
    bins = [
        [low + at * width, high if at == BINS - 1 else low + (at + 1) * width, n]
        for at, n in enumerate(tally)
    ]
    return {"of": of, "bins": bins}


def whole(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Some samples with all their texts: of `rows`, or all of a `group` at a `step`."""
    kept = _kept(site, asked)
    with kept.lock:
        index = _refreshed(kept)
        rows = _rows(kept, asked) if asked.get("rows") is None else _numbers(asked["rows"])
        rows = [row for row in rows if 0 <= row < len(index)]
        found: list[Any] = []
        size = 0
        for row, line in index.texts(rows[:WHOLE_ROWS]):
            size += len(line)
            if found and size > WHOLE_CHARS:
                break
            found.append([row, sent(json.loads(line))])
    return {"samples": found, "more": len(rows) - len(found)}


def search(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The rows with a text among those that match, a part of them at a time: `next` is where to go on."""
    kept = _kept(site, asked)
    text = str(asked.get("text") or "")
    begin = max(0, int(number(asked, "begin", 0)))
    until = time.monotonic() + SEARCH_S
    with kept.lock:
        index = _refreshed(kept)
        rows = sorted(_rows(kept, {**asked, "sort": "", "among": None}))
        left = rows[begin:]
        looked = len(left)

        def go_on(count: int) -> bool:
            nonlocal looked
            if time.monotonic() > until:
                looked = count
                return False
            return True

        found = list(containing(index, left, text, go_on))[:MAX_FOUND]
    following = begin + looked
    return {"rows": found, "next": following if following < len(rows) else None, "of": len(rows)}


def story(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """One prompt through training: of each step the best completion and what changed since the one before."""
    kept = _kept(site, asked)
    with kept.lock:
        index = _refreshed(kept)
        rows = matching(index, group=str(asked.get("group") or ""), name=str(asked.get("name") or "") or None)
        reward = index.columns.get("reward", [None] * len(index))
        steps: dict[float, list[int]] = {}
        for row in rows:
            steps.setdefault(index.columns["step"][row], []).append(row)
        curve = []
        best = []
        for step, own in sorted(steps.items()):
            values = [reward[row] for row in own if isinstance(reward[row], int | float)]
            mean = sum(values) / len(values) if values else None
            curve.append([sent(step), sent(mean), len(own)])
            best.append(
                max(own, key=lambda row: reward[row] if isinstance(reward[row], int | float) else -math.inf)
            )
        shown = best[-STORY_STEPS:]
        lines = dict(index.texts(sorted(shown)))
    told: list[Any] = []
    before: str | None = None
    size = 0
    for row in shown:
        sample = json.loads(lines[row])
        text = cell_text(sample.get("completion", ""))
        pieces = [["same", text]] if before is None else [list(piece) for piece in word_diff(before, text)]
        size += len(text)
        told.append(
            {"row": row, "step": sent(sample["step"]), "reward": sent(sample.get("reward")), "pieces": pieces}
        )
        before = text
        if size > WHOLE_CHARS:
            break
    prompt = cell_text(json.loads(lines[shown[0]]).get("prompt", "")) if shown else ""
    return {"curve": curve, "steps": told, "prompt": prompt, "earlier": len(best) - len(shown)}
