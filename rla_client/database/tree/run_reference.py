"""References to runs: `@last`, a date, a tracked parameter, or a part of an index."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from rla_client.contract.errors import AmbiguousRunError, DatabaseError, NoSuchRunError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.spelling import ends_in, listed, near
from rla_client.database.tree.run_names import short_name, shown_name, tracked_texts

LAST = "@last"
MAX_CANDIDATES_SHOWN = 8
_DAY_LENGTH = len("2026/11/21/")
_KIND_FOLDER = re.compile(rf"^(?:.*/)?(?:{'|'.join(DEFAULT_LOG_TYPES)})/(?=.+/\d{{4}}/\d\d/\d\d/)")
_MICROSECONDS = re.compile(r"(\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2})-\d{6}(?=[_ ])")


def match_runs(names: Sequence[tuple[str, str]], reference: str) -> list[tuple[str, str]]:
    """(table, index) pairs that a reference matches.

    `@last` is the newest run. Otherwise the first of these rules that matches any run decides: the whole
    index; tracked hyper-parameters (`seed=3` is not 30; `lr=0.1&seed=3`); a part of table and index without
    the microseconds of the time, which would match any short number; a part with the microseconds; the name
    that `rla-agent status` prints (time, table, hyper-parameters), possibly cut with …; its words in any
    order, each possibly cut with …. In the path of a folder of the run, everything before the table is
    ignored.
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
    """Runs with this name, or this beginning before an …, in `rla-agent status` or `rla show`."""
    begin = text.removesuffix("…")
    fits = str.__eq__ if begin == text else str.startswith
    return [pair for pair in names if fits(_status_name(*pair), begin) or fits("/".join(pair), begin)]


def _status_name(table: str, index: str) -> str:
    found = RunIndex.parse(index)
    return "" if found is None else f"{found.time[:8]} {table} {found.info.strip('&')}".strip()


def _match_words(names: Sequence[tuple[str, str]], words: Sequence[str]) -> list[tuple[str, str]]:
    """Runs that match every word: as the table, a whole tracked hyper-parameter, or a part of the index."""
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
    """Error for a reference that matches no run, or several."""
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
    """Error for a reference that matches no run; of `key=value` parts it names the one that fails."""
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
    """Advice for finding runs by a parameter that is not tracked."""
    there = f"tracked are {listed(tracked)}; " if tracked else ""
    literal = json.dumps(value, ensure_ascii=False) if _by_number(value)[0] else value
    return f"{there}others are found by `rla ls --where {shlex.quote(f'{key} == {literal}')}`"


def _by_number(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)
