"""Record of a run, a row of `rla ls`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rla_client.contract.run_file import CLOSED_STATES, LIVE_STATES
from rla_client.database.records.told_fields import TOLD_FIELDS
from rla_client.database.tree.run_names import short_name, tracked_texts
from rla_client.run.parameters.hyper_params import HyperParams

LIVE_S = 180.0
MAX_CACHED_CHARS = 64 << 10  # longer texts are not cached after parsing
UNKNOWN = "unknown"
SILENT = "silent"  # live by run.json, but its process is gone, and no agent serves to record its end
WAITING = "waiting"  # no run.json yet: its rows are in this machine's spool, and no agent serves
MOMENTS = frozenset({"time", *(one.name for one in TOLD_FIELDS if one.kind == "moment")})  # Unix seconds
STATES = (*sorted(LIVE_STATES), *sorted(CLOSED_STATES), "killed", "removed", UNKNOWN, SILENT, WAITING)


@dataclass(frozen=True, slots=True)
class Record:
    """One run.

    Attributes:
        table: task table name.
        index: `YYYY/MM/DD/<name>`.
        kinds: kinds that have an item of the run.
        opened: start, Unix seconds; 0 if unknown.
        host: machine or address.
        state: as in run.json; None without that file.
        updated: when run.json was last written, Unix seconds.
        time_step: last time-step in progress.csv; without rows that of the checkpoint that it continues from.
        duration_s: duration, see `run_duration_s`; of a chain the total of its items.
        hyper_json: hyper-parameters as JSON text; `hyper` gives them nested.
        metrics_json: last value of each column of progress.csv as JSON text; `metrics` parses it.
        tags: tags in note.json.
        note: note in note.json.
        display_name: display name in note.json; empty without one.
        problems: one line of text per file that could not be read.
        parent: index of the run that this one continues (see `chain_of`), empty without one.
        tracked_json: `tracked_texts` of its index as JSON text, only if a value holds an `&`.
        told_json: further fields of run.json and environment.json, see `told`.
        likely: the likely metric (see `likely_metric`), empty without one.
        likely_text: its last value, as `repr` of a float.
    """

    table: str
    index: str
    kinds: tuple[str, ...] = ()
    opened: float = 0.0
    host: str = ""
    state: str | None = None
    updated: float | None = None
    time_step: float | None = None
    duration_s: float | None = None
    hyper_json: str = "{}"
    metrics_json: str = "{}"
    tags: tuple[str, ...] = ()
    note: str = ""
    problems: tuple[str, ...] = ()
    parent: str = ""
    tracked_json: str = ""
    told_json: str = "{}"
    likely: str = ""
    likely_text: str = ""
    display_name: str = ""

    @property
    def tracked(self) -> Mapping[str, str]:
        """The tracked hyper-parameters, as texts from the index."""
        return _parse(self.tracked_json) if self.tracked_json else tracked_texts(self.index)

    @property
    def hyper(self) -> HyperParams:
        """The hyper-parameters; cached, so callers must not change them."""
        return _parse(self.hyper_json)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Last value of each column of progress.csv; callers must not change it."""
        return _parse(self.metrics_json)

    @property
    def told(self) -> Mapping[str, Any]:
        """Fields of run.json and environment.json, see `TOLD_FIELDS`; callers must not change them."""
        return _parse(self.told_json)

    @property
    def likely_value(self) -> float | None:
        """Last value of the likely metric."""
        return float(self.likely_text) if self.likely_text else None

    @property
    def date(self) -> str:
        """`YYYY/MM/DD/HH-MM-SS-ffffff`, the short name of the run."""
        return short_name(self.index)

    def shown_state(self, now: float) -> str:
        """The state; `unknown` without one, or if a live run was not updated for `LIVE_S`."""
        if self.state in LIVE_STATES and self.updated is not None and now - self.updated > LIVE_S:
            return UNKNOWN
        return self.state or UNKNOWN

    def is_live(self, now: float) -> bool:
        """Whether it is being written, by its files."""
        return self.shown_state(now) in LIVE_STATES


def to_json(value: object) -> str:
    """JSON text of plain data; other values, such as dates, become text."""
    return json.dumps(value, default=str, separators=(",", ":"))


def _parse(text: str) -> HyperParams:
    return (_kept if len(text) <= MAX_CACHED_CHARS else _last)(text)


def _parsed(text: str) -> HyperParams:
    found = json.loads(text, object_hook=HyperParams)
    return found if isinstance(found, HyperParams) else HyperParams()


_kept = lru_cache(maxsize=1 << 15)(_parsed)  # 15,000 runs, each parsed several times by a filter and a table
_last = lru_cache(maxsize=4)(_parsed)  # for one run with many values read in turn
