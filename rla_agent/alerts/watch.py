"""Metric rules over the rows of one stream. Pure: batches in, firings out.

A rule fires when its condition has held for `rows` rows in a row, and again only after a row in which
it did not hold. Rows without any column that the rule names change nothing. The state is stored
with the stream's position, in the same transaction as the firings, so that after a kill the replayed
rows give the same firings again and none twice.

What rules of the machine look at: free space, and whether replication has stopped.

`statvfs` on a server that hangs does not return, so disks are looked at in lanes
(rla_agent/pipeline/disks.py); the dispatcher takes what they last found. Replication is read from its ledger,
a local SQLite file.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rla_agent.model.ingest import Batch, Row
from rla_agent.pipeline.disks import Disk, Lanes, disk_of
from rla_agent.replicate.report import replication_status
from rla_client.config.alerts import AlertRule

DISK_LOOK_S = 10.0
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk is well again when it has so much more than the limit
MAX_NAMED = 5  # columns that one firing names
MAX_KNOWN_KEYS = 1 << 17  # column names whose match with a glob is remembered; then begun anew
MAX_WAITING = 1000  # firings of one commit; the first ones tell what there is to tell
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule's condition came true.

    Attributes:
        number: segment of the row.
        offset: byte after it.
        rule: id of the rule.
        fields: `config` (where the rule stands), `metrics` (name → value, some of them), `time_step`,
            `timestamp`.
    """

    number: int
    offset: int
    rule: str
    fields: dict[str, Any]


class _Tracked:
    """One rule and how far it is."""

    def __init__(self, rule_id: str, config: str, rule: AlertRule) -> None:
        self.rule_id = rule_id
        self.config = config
        self.rule = rule
        self.count = 0  # rows in a row
        self.told = False  # since the condition last began to hold
        self.ever = False
        self._exact = not _GLOB & set(rule.metric)
        self._known: dict[str, bool] = {}

    def look(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The columns that fulfil the condition; None when the row has none that the rule names."""
        rule = self.rule
        if rule.metric == "*":
            named: Mapping[str, Any] = values
        elif self._exact:
            if rule.metric not in values:
                return None
            named = {rule.metric: values[rule.metric]}
        else:
            named = {key: value for key, value in values.items() if self._matches(key)}
        if not named:
            return None
        event = rule.when[0]
        if event == "nan":
            return {key: value for key, value in named.items() if value != value}  # noqa: PLR0124 - NaN alone
        numbers = {k: v for k, v in named.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if not numbers:
            return None
        if event == "above":
            return {key: value for key, value in numbers.items() if value > rule.value}
        return {key: value for key, value in numbers.items() if value < rule.value}

    def _matches(self, key: str) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN_KEYS:
                self._known.clear()
            known = self._known[key] = fnmatch.fnmatchcase(key, self.rule.metric)
        return known

    def fires(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take one row; the columns to tell of when the rule fires."""
        beyond = self.look(values)
        if beyond is None:
            return None
        if not beyond:
            self.count, self.told = 0, False
            return None
        self.count += 1
        if self.told or self.count < self.rule.rows or (self.rule.once and self.ever):
            return None
        self.told = self.ever = True
        return dict(list(beyond.items())[:MAX_NAMED])


class Watch:
    """The metric rules that hold for one stream; each with its id and its configuration."""

    def __init__(self, rules: Sequence[tuple[str, str, AlertRule]]) -> None:
        self.firings: list[Firing] = []
        self._tracked = [_Tracked(*rule) for rule in rules]

    def take(self, batch: Batch) -> None:
        """Look at the rows of a batch that the stream takes in."""
        for record in batch.records:
            row = record.content
            if type(row) is not Row:
                continue
            for tracked in self._tracked:
                beyond = tracked.fires(row.values)
                if beyond is not None and len(self.firings) < MAX_WAITING:
                    fields = {
                        "config": tracked.config,
                        "metrics": _plain(beyond),
                        "time_step": row.step,
                        "timestamp": row.timestamp,
                    }
                    self.firings.append(Firing(batch.number, record.end, tracked.rule_id, fields))

    def state(self) -> dict[str, list[int]]:
        """Durable form: rule id → rows in a row, told, ever told; rules at rest are left out."""
        return {
            tracked.rule_id: [tracked.count, int(tracked.told), int(tracked.ever)]
            for tracked in self._tracked
            if tracked.count or tracked.ever
        }

    def restore(self, state: object) -> None:
        """Go on from what `state` gave; rules that are not in it begin anew."""
        if not isinstance(state, dict):
            return
        for tracked in self._tracked:
            known = state.get(tracked.rule_id)
            if not isinstance(known, list) or len(known) != 3:  # noqa: PLR2004 - as `state` writes it
                continue
            if all(isinstance(one, int) for one in known):
                tracked.count, tracked.told, tracked.ever = known[0], bool(known[1]), bool(known[2])


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them; NaN and infinities as text."""
    return {
        key: value if isinstance(value, int) or abs(value) < float("inf") else repr(float(value))
        for key, value in values.items()
    }


class Disks:
    """Free bytes of folders; a file system that hangs leaves only its own unknown."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._lanes = Lanes("alert-disks")
        self._next = 0.0

    def look(self, folders: Mapping[str, int], now: float) -> dict[str, int]:
        """Free bytes as last seen, by folder; looks again in the background when that is due.

        Args:
            folders: folder → `st_dev` as it is known, which tells file systems apart.
            now: monotonic.
        """
        if now >= self._next:
            self._next = now + DISK_LOOK_S
            self._free = {folder: free for folder, free in list(self._free.items()) if folder in folders}
            by_disk: dict[Disk, list[str]] = {}
            for folder in sorted(folders):
                by_disk.setdefault(disk_of(folder, folders[folder]), []).append(folder)
            idle = {disk: some for disk, some in by_disk.items() if self._lanes.hung_s(disk) is None}
            self._lanes.run({disk: partial(self._see, some) for disk, some in idle.items()}, 0.0)
        return dict(self._free)

    def _see(self, folders: list[str]) -> None:
        for folder in folders:
            with suppress(OSError):
                disk = os.statvfs(folder)
                self._free[folder] = disk.f_bavail * disk.f_frsize


class Replica:
    """What of replication has stopped and waits for somebody."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._next = 0.0
        self._found: dict[str, str] = {}

    def look(self, now: float) -> dict[str, str]:
        """Subject → details; looked up each REPLICATION_LOOK_S."""
        if now < self._next:
            return self._found
        self._next = now + REPLICATION_LOOK_S
        status = replication_status(self._state)
        found: dict[str, str] = {}
        for target in status["targets"]:
            if target.get("health") == "blocked":
                mend = target.get("mend") or ""
                found[str(target["target"])] = f"{target.get('reason') or 'has stopped'}\n{mend}".strip()
        if status["parked_files"]:
            first = status["parked"][0]
            lines = [f"{status['parked_files']} files do not go to the master, the first: {first['path']}"]
            lines += [first["reason"], first["mend"], "see: rla-agent replicate status"]
            found["files"] = "\n".join(line for line in lines if line)
        self._found = found
        return found
