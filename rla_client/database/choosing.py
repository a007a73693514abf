"""What users mean: runs by a part of their index, ages and dates, names in filters. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from rla_client.database.records import Record, shown_name
from rla_client.database.rows import ALIASES, FIELDS
from rla_client.errors import AmbiguousRunError, ArgumentError, DatabaseError, NoSuchRunError

LAST = "@last"
Since = str | float | datetime | None
MAX_CANDIDATES_SHOWN = 8
_MICROSECONDS = re.compile(r"(\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2})-\d{6}(?=[_ ])")


def match_runs(names: Sequence[tuple[str, str]], reference: str) -> list[tuple[str, str]]:
    """(table, index) pairs that a reference means.

    `@last`; else the first of these that any run fits: the whole index; tracked hyper-parameters
    as they stand there (`seed=3` is not 30; `lr=0.1&seed=3`); a part of table and index without the
    microseconds of its time, which fit any short number; a part with them; its words in any order,
    as `rla-agent status` prints them: time, table, hyper-parameters, each cut where a … stands.
    """
    if reference == LAST:
        return list(names[-1:])
    wanted = reference.strip().rstrip("/")
    if not wanted:
        return []
    exact = [pair for pair in names if wanted in {pair[1], f"{pair[0]}/{pair[1]}"}]
    if exact:
        return exact
    fields = [f"&{part}&" for part in wanted.strip("&").split("&")]
    if all("=" in field for field in fields):
        exact = [pair for pair in names if all(field in f"{pair[1]}&" for field in fields)]
    return (
        exact
        or [pair for pair in names if wanted in _MICROSECONDS.sub(r"\1", f"{pair[0]}/{pair[1]}", count=1)]
        or [pair for pair in names if wanted in f"{pair[0]}/{pair[1]}"]
        or _match_words(names, wanted.split())
    )


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
        return NoSuchRunError(f"no run fits {reference!r}; `rla ls` lists them, @last is the newest")
    shown = "\n".join(f"  {shown_name(table, index)}" for table, index in found[-MAX_CANDIDATES_SHOWN:])
    more = f" (the newest {MAX_CANDIDATES_SHOWN})" if len(found) > MAX_CANDIDATES_SHOWN else ""
    return AmbiguousRunError(
        f"{len(found)} runs fit {reference!r}, give a longer part, in quotes where it holds & "
        f"('lr=0.1&seed=3'){more}:\n{shown}"
    )


def check_names(names: AbstractSet[str], records: Sequence[Record]) -> None:
    """Complain about a name that no run has, or the user waits for rows in vain.

    Raises:
        ArgumentError: no run has one of them; the message lists those that there are.
    """
    missing = names - set(FIELDS) - ALIASES.keys()
    for name in sorted(missing):
        quoted = _quoted(name)  # ten thousand records are looked at, most of them in vain: text first
        for record in reversed(records):
            spelled = any(part in record.hyper_json or part in record.metrics_json for part in quoted)
            if spelled and _has(record, name):
                missing = missing - {name}
                break
    if not records or not missing:
        return
    known: set[str] = {*FIELDS, *ALIASES}
    for record in records:
        known.update(record.hyper.flat(), record.metrics)
    lacking = sorted(name for name in missing - known if not any(key.startswith(f"{name}.") for key in known))
    if lacking:
        listing = ", ".join(sorted(known)[:60])
        message = f"no run has {', '.join(map(repr, lacking))}; known names: {listing}"
        raise ArgumentError(message)


def _quoted(name: str) -> set[str]:
    """How a name, or the first part of a dotted one, is spelled in JSON."""
    parts = {name, name.split(".", maxsplit=1)[0]}
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
        message = f"{since!r} is no date; write 2026/11/21, 2026-11-21T09:30, or an age such as 36h, 7d"
        raise ArgumentError(message) from error
