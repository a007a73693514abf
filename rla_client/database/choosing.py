"""Which runs users mean: by a part of their index, an age or a date, or a filter over the catalogue.

A filter makes no `Record` of each row: of 100,000 few are wanted. A hyper-parameter or a metric is cut out
of the JSON text that the catalogue keeps, where that is flat; fields of a run, nested parameters, and runs
whose state this machine may know better go by `RowView`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from rla_client.contract.errors import AmbiguousRunError, ArgumentError, DatabaseError, NoSuchRunError
from rla_client.contract.layout import DEFAULT_LOG_TYPES, RunIndex
from rla_client.contract.opening import LIVE_STATES
from rla_client.contract.textformat import ends_in, full_name, listed, near, unknown
from rla_client.database.catalogue import COLUMNS, Catalogue, record_of
from rla_client.database.live import with_live_states
from rla_client.database.records import (
    ALIASES,
    FIELDS,
    Record,
    RowView,
    short_name,
    shown_name,
    tracked_texts,
)
from rla_client.database.where import Where
from rla_client.run.hyper_params import HyperParams

LAST = "@last"
Since = str | float | datetime | None
MAX_CANDIDATES_SHOWN = 8
_DAY_LENGTH = len("2026/11/21/")
_KIND_FOLDER = re.compile(rf"^(?:.*/)?(?:{'|'.join(DEFAULT_LOG_TYPES)})/(?=.+/\d{{4}}/\d\d/\d\d/)")
_MICROSECONDS = re.compile(r"(\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2})-\d{6}(?=[_ ])")


def match_runs(names: Sequence[tuple[str, str]], reference: str) -> list[tuple[str, str]]:
    """(table, index) pairs that a reference means.

    `@last`; else the first of these that any run fits: the whole index; tracked hyper-parameters
    as they stand there (`seed=3` is not 30; `lr=0.1&seed=3`); a part of table and index without the
    microseconds of its time, which fit any short number; a part with them; what `rla-agent status`
    prints (time, table, hyper-parameters), up to an … at its end; its words in any order, each cut
    where a … stands. What stands before the table in the path of a folder of the run does not count.
    """
    if reference == LAST:
        return list(names[-1:])
    wanted = reference.strip().rstrip("/")
    if not wanted:
        return []
    exact = [pair for pair in names if wanted in {pair[1], f"{pair[0]}/{pair[1]}"}]
    if exact:
        return exact
    below_kind = _KIND_FOLDER.sub("", wanted)
    if below_kind != wanted:
        return match_runs(names, below_kind)
    fields = [f"&{part}&" for part in wanted.strip("&").split("&")]
    if all("=" in field for field in fields):
        exact = [pair for pair in names if all(field in f"{pair[1]}&" for field in fields)]
    return (
        exact
        or [pair for pair in names if wanted in _MICROSECONDS.sub(r"\1", f"{pair[0]}/{pair[1]}", count=1)]
        or [pair for pair in names if wanted in f"{pair[0]}/{pair[1]}"]
        or _match_shown(names, wanted)
        or _match_words(names, wanted.split())
    )


def _match_shown(names: Sequence[tuple[str, str]], text: str) -> list[tuple[str, str]]:
    """Runs that `rla-agent status` or `rla show` print as this text, or as one that begins so before an …."""
    begin = text.removesuffix("…")
    fits = str.__eq__ if begin == text else str.startswith
    return [pair for pair in names if fits(_status_name(*pair), begin) or fits("/".join(pair), begin)]


def _status_name(table: str, index: str) -> str:
    found = RunIndex.parse(index)
    return "" if found is None else f"{found.time[:8]} {table} {found.info.strip('&')}".strip()


def _match_words(names: Sequence[tuple[str, str]], words: Sequence[str]) -> list[tuple[str, str]]:
    """Runs that have each word: the table, whole tracked hyper-parameters, or else a part of the index."""
    if len(words) < 2 and not words[0].endswith("…"):  # noqa: PLR2004
        return []

    def has(pair: tuple[str, str], word: str) -> bool:
        table, index = pair
        if word in {table, "…"}:
            return True
        text = word.removesuffix("…").strip("&")
        if "=" not in text:
            return text in index
        cut = word.endswith("…") and not word.endswith("&…")
        return f"&{text}" in f"&{index}" if cut else f"&{text}&" in f"&{index}&"

    return [pair for pair in names if all(has(pair, word) for word in words)]


def not_one(found: list[tuple[str, str]], names: Sequence[tuple[str, str]], reference: str) -> DatabaseError:
    """The error to raise when a reference means no run, or several."""
    if not names:
        return NoSuchRunError("there is no run here yet")
    if not found:
        return _no_run(names, reference)
    shown = "\n".join(f"  {shown_name(table, index)}" for table, index in found[-MAX_CANDIDATES_SHOWN:])
    more = f" (the newest {MAX_CANDIDATES_SHOWN})" if len(found) > MAX_CANDIDATES_SHOWN else ""
    return AmbiguousRunError(
        f"{len(found)} runs match {reference!r}; give a longer part, in quotes where it holds & "
        f"('lr=0.1&seed=3'){more}:\n{shown}"
    )


def _no_run(names: Sequence[tuple[str, str]], reference: str) -> NoSuchRunError:
    """The error for a reference that means no run: of `key=value` parts it says which one fails."""
    problem = f"no run matches {reference!r}"
    tracked: dict[str, list[str]] = {}
    for _, index in reversed(names):
        for key, value in tracked_texts(index).items():
            tracked.setdefault(key, []).append(value)
    for part in reference.strip().strip("&").split("&"):
        key, sign, value = part.partition("=")
        if sign and key not in tracked:
            close = (ends_in(key, tracked) or near(key, tracked))[:1]
            advice = f"did you mean {close[0]}={value}?" if close else _by_parameter(key, value, tracked)
            return NoSuchRunError(f"{problem}: no run tracks a parameter {key!r}\nhint: {advice}")
        if sign and value not in tracked[key]:
            values = listed(sorted(set(tracked[key]), key=_by_number))
            return NoSuchRunError(f"{problem}: none has {key}={value}\nhint: {key} is {values}")
    words = {word for _, index in names for word in (short_name(index), short_name(index)[_DAY_LENGTH:])}
    tables = {table for table, _ in names}
    close = near(reference, ["@last", *sorted(tables), *sorted(words, reverse=True)])
    meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return NoSuchRunError(f"{problem}\nhint: {meant}`rla ls` lists the runs, @last is the newest")


def _by_parameter(key: str, value: str, tracked: Mapping[str, object]) -> str:
    """How to find runs by a parameter that stands in no name."""
    there = f"tracked are {listed(tracked)}; " if tracked else ""
    literal = json.dumps(value, ensure_ascii=False) if _by_number(value)[0] else value
    return f"{there}others are found by `rla ls --where {shlex.quote(f'{key} == {literal}')}`"


def _by_number(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def full_names(
    names: AbstractSet[str],
    records: Sequence[Record],
    *,
    lenient: bool = False,
    texts: AbstractSet[str] = frozenset(),
) -> dict[str, str]:
    """Each name as the runs spell it; the last parts of a dotted or nested one are enough.

    What any run has under the very name is that. Else a hyper-parameter is looked for, then a metric.

    Args:
        names: of fields, hyper-parameters or metrics.
        records: of the runs that are asked for them; without any, names stay as they are.
        lenient: a name that no run has stays as it is.
        texts: those that may be text without its quotes.

    Raises:
        UnknownNameError: no run has one of them, or it is cut so short that it fits several.
    """
    found = {name: name for name in names}
    missing = names - set(FIELDS) - ALIASES.keys()
    missing = {name for name in missing if records and not _any_has(records, name)}
    if not missing:
        return found
    hyper = dict.fromkeys(key for record in reversed(records) for key in record.hyper.flat())
    metrics = dict.fromkeys(key for record in reversed(records) for key in record.metrics)
    for name in sorted(missing):
        pool = hyper if ends_in(name, hyper) else metrics
        if ends_in(name, pool):
            found[name] = full_name(name, pool, "")
        elif not lenient:
            quotes = f'; if it is text, put it in quotes: "{name}"' if name in texts else ""
            raise unknown(name, [*hyper, *metrics, *FIELDS, *ALIASES], f"no run has {name!r}{quotes}")
    return found


def spell(test: Where, records: Sequence[Record]) -> None:
    """Tell a filter how the runs spell its names; see `full_names`.

    Raises:
        UnknownNameError: no run has one of them, or it is cut so short that it fits several.
    """
    lacked = full_names(test.may_lack, records, lenient=True)
    test.full = lacked | full_names(test.names - test.may_lack, records, texts=test.texts)


def full_metrics(names: Sequence[str], records: Sequence[Record]) -> list[str]:
    """As `full_names`, for last values of metrics alone.

    Raises:
        UnknownNameError: no run has one of them, or it is cut so short that it fits several.
    """
    if not records or all(any(name in record.metrics for record in records) for name in names):
        return list(names)
    known = list(dict.fromkeys(key for record in reversed(records) for key in record.metrics))
    return [full_name(name, known, f"no run has a metric {name!r}") for name in names]


def _any_has(records: Sequence[Record], name: str) -> bool:
    quoted = _quoted(name)  # ten thousand records are looked at, most of them in vain: text first
    return any(
        any(part in record.hyper_json or part in record.metrics_json for part in quoted)
        and _has(record, name)
        for record in reversed(records)
    )


def _quoted(name: str) -> set[str]:
    """How a name, or a key that a dotted one begins with, is spelled in JSON."""
    parts = {name, *(name[:at] for at, letter in enumerate(name) if letter == ".")}
    return {json.dumps(part, ensure_ascii=plain) for part in parts for plain in (True, False)}


def _has(record: Record, name: str) -> bool:
    if name in record.metrics:
        return True
    try:
        record.hyper.dotted(name)
    except KeyError:
        return False
    return True


def parse_since(since: Since, now: float) -> float | None:
    """Unix seconds of a date or an age.

    Raises:
        ArgumentError: it is neither.
    """
    if since is None or isinstance(since, int | float):
        return since
    if isinstance(since, datetime):
        return since.timestamp()
    units = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
    if since[-1:] in units and since[:-1].replace(".", "", 1).isdigit():
        return now - float(since[:-1]) * units[since[-1]]
    try:
        return datetime.fromisoformat(since.replace("/", "-")).timestamp()
    except ValueError as error:
        message = f"{since!r} is not a date; write 2026/11/21, 2026-11-21T09:30, or an age such as 36h, 7d"
        raise ArgumentError(message) from error


Row = tuple[Any, ...]
_HYPER, _METRICS, _STATE = (COLUMNS.index(name) for name in ("hyper", "metrics", "state"))
_TEXTS = ("table_name", "idx", "hyper", "metrics")  # what `Catalogue.texts` gives
FEW = 10  # runs are read one by one where no more than one in so many passes
_NOTHING = object()
_FIELDS = frozenset((*FIELDS, *ALIASES))
_decode = json.JSONDecoder(object_hook=HyperParams).raw_decode


def fitting(  # noqa: PLR0913 - what `Database.records` takes
    data_root: Path,
    catalogue: Catalogue,
    test: Where,
    now: float,
    *,
    table: str | None,
    since: float | None,
    limit: int | None,
) -> list[Record]:
    """The runs that pass a filter, oldest first.

    Args:
        data_root: of the database.
        catalogue: as of the last refresh.
        test: its names may be short ones.
        now: Unix seconds.
        table: only this task table.
        since: only runs that began at or after these Unix seconds.
        limit: only the newest so many.

    Raises:
        UnknownNameError: no run has one of the names.
    """
    if _FIELDS.isdisjoint(test.names):
        texts = catalogue.texts(table, since=since)
        spell(test, _Records(texts, _record_of_texts))
        if _FIELDS.isdisjoint(test.full.values()):
            view = _Scanned(_TEXTS.index("hyper"), _TEXTS.index("metrics"), now)
            keys = []
            for row in texts:
                view.row = row
                if test(view):
                    keys.append(row[:2])
            keys = keys if limit is None else keys[-limit:]
            if len(keys) * FEW > len(texts):
                wanted = set(keys)
                found = [record_of(row) for row in catalogue.rows(table, since=since) if row[:2] in wanted]
            else:
                found = catalogue.chosen(keys)
            return with_live_states(data_root, found, now)
    rows = catalogue.rows(table, since=since)
    spell(test, _Records(rows, record_of))
    told = [record_of(row) for row in rows if row[_STATE] is None or row[_STATE] in LIVE_STATES]
    known = {(one.table, one.index): one for one in with_live_states(data_root, told, now)} if told else {}
    view, chosen = _Scanned(_HYPER, _METRICS, now), []
    for row in rows:
        view.row = row
        record = known.get(row[:2])
        if test(view if record is None else RowView(record, now)):
            chosen.append(record or record_of(row))
    return chosen if limit is None else chosen[-limit:]


def _record_of_texts(row: Row) -> Record:
    known = dict(zip(_TEXTS, row, strict=True))
    return record_of(tuple("" if name == "kinds" else known.get(name) for name in COLUMNS))


class _Records(Sequence[Record]):
    """Rows as records, each made when it is looked at."""

    def __init__(self, rows: Sequence[Row], record: Callable[[Row], Record]) -> None:
        self._rows = rows
        self._record = record

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return list(map(self._record, self._rows[place]))
        return self._record(self._rows[place])

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, self._rows)

    def __reversed__(self) -> Iterator[Record]:
        return map(self._record, reversed(self._rows))


class _Scanned(dict[str, Any]):
    """A row by name, as far as a filter asks: `get` alone.

    Args:
        hyper: where in a row the hyper-parameters are.
        metrics: likewise; a field of the run asks for a row in the order of `COLUMNS`.
        now: Unix seconds.
    """

    row: Row

    def __init__(self, hyper: int, metrics: int, now: float) -> None:
        self._hyper, self._metrics, self._now = hyper, metrics, now

    def get(self, name: str, default: object = None) -> object:
        """As `RowView.get`."""
        row = self.row
        if name in _FIELDS:
            return RowView(record_of(row), self._now).get(name, default)
        return parameter_or_metric(row[self._hyper], row[self._metrics], name, default)


def parameter_or_metric(hyper: str | None, metrics: str | None, name: str, default: object = None) -> object:
    """What `RowView.get` gives for a name that is not a field, out of the JSON texts of a record."""
    found = value_in(hyper, name)
    if found is _NOTHING:
        found = value_in(metrics, name, nested=False)
    return default if found is _NOTHING else found


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return f"{json.dumps(name)}:"


def value_in(text: str | None, name: str, *, nested: bool = True) -> object:
    """The value of a name in JSON text of `records.to_json`; `_NOTHING` without one.

    A quote inside a text is escaped, so what follows a brace or a comma and looks like a key is one.
    """
    if not text:
        return _NOTHING
    key = _spelled(name)
    at = text.find(key)
    if at < 0 and not (nested and "." in name):
        return _NOTHING
    if text.find("{", 1) >= 0:
        whole = json.loads(text, object_hook=HyperParams)
        try:
            return whole.dotted(name) if nested else whole[name]
        except KeyError:
            return _NOTHING
    while at > 0 and text[at - 1] not in "{,":
        at = text.find(key, at + 1)
    return _decode(text, at + len(key))[0] if at > 0 else _NOTHING
