"""What users mean: runs by a part of their index, ages and dates, names in filters. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import TYPE_CHECKING

from rla_client.contract.errors import AmbiguousRunError, ArgumentError, DatabaseError, NoSuchRunError
from rla_client.contract.layout import DEFAULT_LOG_TYPES, RunIndex
from rla_client.contract.spelling import ends_in, full_name, listed, near, unknown
from rla_client.database.records import Record, short_name, shown_name, tracked_texts
from rla_client.database.rows import ALIASES, FIELDS

if TYPE_CHECKING:
    from rla_client.database.where import Where

# Student's t, 97.5 %, by degrees of freedom from 1
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
