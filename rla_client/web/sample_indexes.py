"""Cached indexes of runs' samples.

The index of a run's samples stays in memory and follows its files. A list that is requested page by page is
filtered and sorted once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.tree.chains import chain_of
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import PageRun, Site

KEPT_RUNS = 8  # runs with an index in memory
_Key = tuple[Any, ...]


@dataclass(slots=True)
class CachedIndex:
    """The index of one run, with its most recent lists."""

    index: SampleIndex
    lock: threading.Lock = field(default_factory=threading.Lock)
    lists: OrderedDict[_Key, list[int]] = field(default_factory=OrderedDict)  # by arguments of the request
    changes: int = 0  # how often new samples were found


class SampleIndexes:
    """Indexes of the most recently used runs. It may be used from several threads."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[int, str, str], CachedIndex] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, site: Site, entry: PageRun) -> CachedIndex:
        """The index of a run."""
        table, index = entry.record.table, entry.record.index
        key = (entry.place, table, index)
        with self._lock:
            kept = self._runs.get(key)
            if kept is None:
                root = site.database(entry).data_root
                kept = self._runs[key] = CachedIndex(SampleIndex(root, table, chain_of(root, table, index)))
            self._runs.move_to_end(key)
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
        return kept


_indexes: dict[str, SampleIndexes] = {}  # by the server's `boot`


def cached_index(site: Site, asked: dict[str, Any]) -> CachedIndex:
    """The cached index of the run that a request names."""
    return _indexes.setdefault(site.boot, SampleIndexes()).of(site, asked_run(site, asked))


def refreshed(kept: CachedIndex) -> SampleIndex:
    """The index, brought up to date; the caller holds its lock."""
    if kept.index.refresh():
        kept.lists.clear()
        kept.changes += 1
    return kept.index
