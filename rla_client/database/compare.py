"""Comparing runs: what differs between them, what groups of them amount to, how far to trust their seeds.

Of hyper-parameters and environment values are compared, of code lines: of files that are text and meant to
be read. Of tables and drawings (`NO_LINES`), of binary files, and of files with lines longer than anybody
reads it is only said that they differ, or a plot in the project's folder would hide what was changed in the
program. Code is a folder of files, or a launcher's archive in it, or both. Files are compared with files, and
where a run has none, archives with archives: the two begin at different folders.

Groups of runs that differ in their seeds are ranked by the mean of a metric. Both answers come from a
bootstrap of that ranking: runs are drawn anew, with replacement, within each group.

- *Enough*: how often the group that is first stays first, with as many runs as there are and with more. It
  is as good as the runs are: two or three of them say little about how they spread, and rather too little,
  so they are never called enough. Of two equal groups of two runs, one is above the other every third time.
- *Flattered*: a group that was chosen because its mean is the best is, on average, less good than that
  (Patterson et al., Empirical Design in Reinforcement Learning, JMLR 25, 2024). By how much is what the
  winners of the draws lose when they are judged by all runs, which is rather too little. Less than
  `NEGLIGIBLE` is not told: the draws cannot tell it from nothing. Seeds that only the chosen group has chose
  nothing, so they report it honestly.

Without numpy, as `rla ls` starts without it.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Protocol

from rla_client.code.launch_archive import MANIFEST_NAME
from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.layout import HYPARAM_FILE_NAME, LOG
from rla_client.contract.run_file import run_file
from rla_client.database.csv_table import PROGRESS_FILE, chain_names, read_chain, read_numbers, warn_broken
from rla_client.database.environment import ENVIRONMENT_FILE, compared
from rla_client.database.grouping import group_label, group_order, group_text
from rla_client.database.records import ALIASES, CLOCKS, FIELDS, Record, RowView, read_json
from rla_client.database.text import clean
from rla_client.database.tree import chain_of, files_below
from rla_client.database.where import parameter_or_metric
from rla_client.run.parameters.hyper_params import differences

MAX_CODE_BYTES = 2 << 20  # a larger file is only said to differ
MAX_DIFF_CHARS = 2 << 20  # of a bounded diff; a person reads less
MAX_LINE = 5000  # characters; longer ones are data: minified, or pictures inside a notebook
NO_LINES = frozenset({".csv", ".tsv", ".jsonl", ".svg", ".pdf", ".ps", ".eps", ".log"})  # results and data
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # a form feed and an escape do occur in sources
LAUNCH_FILES = frozenset({"launch_archive.tar.xz", "launch_archive.tar", MANIFEST_NAME})
PARAMETER_FILES = frozenset(f"{HYPARAM_FILE_NAME}.{suffix}" for suffix in ("json", "yaml"))
_ENVIRONMENT = ("host", "user", "versions")
SEED = "seed"
SURE = 0.95  # of the draws in which the first group stays first
LEAST = 4  # runs a group that may be called enough: of two equal groups of three, one is on top 1 time in 10
COUNTS = (4, 5, 7, 10, 15, 20, 30, 50)  # runs a group that are tried
DRAWS = 400  # of each count: a share of 95 % is known to 1 %
EXACT = 50  # runs; the mean of more is drawn from the normal distribution that it has by then
NEGLIGIBLE = 0.1  # of the standard error of the chosen mean; what `DRAWS` say is off by half of that
MAX_GROUPS = 8  # the best ones; of those behind them none is in the way of the first
_LESS_IS_BETTER = ("loss", "error", "err", "regret", "cost")
Placed = tuple[Path, Record]
# Student's t, 97.5 %, by degrees of freedom from 1
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def run_differences(first: Placed, second: Placed) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Differences by section (`hyper-parameters`, `environment`): name → (value here, value there).

    Args:
        first: data root and record of a run.
        second: of the other.
    """
    return {
        "hyper-parameters": differences(first[1].hyper.flat(), second[1].hyper.flat()),
        "environment": differences(_environment(*first), _environment(*second)),
    }


def _environment(data_root: Path, record: Record) -> dict[str, Any]:
    """What run.json and environment.json say; one that is broken counts as missing."""
    found: dict[str, Any] = {"host": record.host}
    with suppress(DatabaseError, OSError):
        path = data_root / LOG / record.table / record.index / ENVIRONMENT_FILE
        found |= compared(read_json(path) or {})
    about = run_file(data_root, record.table, record.index)
    for name in _ENVIRONMENT:
        value = about.get(name)
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        elif value is not None:
            found[name] = value
    return found


def differing_keys(records: Sequence[Record]) -> tuple[list[str], list[dict[str, Any]]]:
    """Hyper-parameters that are not the same in all runs, and each run's flat hyper-parameters."""
    flats: list[dict[str, Any]] = [record.hyper.flat() for record in records]
    names = dict.fromkeys(name for flat in flats for name in flat)
    missing = object()
    keys = [name for name in names if len({repr(flat.get(name, missing)) for flat in flats}) > 1]
    return keys, flats


def code_differences(first: str, second: str, *, bounded: bool = False) -> tuple[str, list[str]]:
    """Unified diff of the code of two runs, and those that have none to be compared; then it is empty.

    Args:
        first: folder of a run's code.
        second: of the other's.
        bounded: see `code_diff`; archives are not unpacked either.

    Raises:
        LaunchError: an archive is damaged.
    """
    folders = (first, second)
    lacking = [folder for folder in folders if not has_code(folder)]
    if not lacking:
        return code_diff(*folders, bounded=bounded), []
    if bounded or not all(map(has_archive, folders)):
        return "", lacking
    from rla_client.code.launch_archive import restore

    with tempfile.TemporaryDirectory(prefix="rla-diff-") as temporary:
        trees = [Path(temporary, name) for name in ("first", "second")]
        for folder, tree in zip(folders, trees, strict=True):
            restore(Path(folder), tree)
        return code_diff(*map(str, trees)), []


def code_diff(first: str, second: str, *, bounded: bool = False) -> str:
    """Unified diff of two code folders; empty when they are equal, or when there is nothing in one.

    Files without lines to compare (see above), or larger than `MAX_CODE_BYTES`, are only said to
    differ. The parameters and a launcher's archive that lie beside the code are no code. `has_code` tells
    the cases apart.

    Args:
        first: folder of a run's code.
        second: of the other's.
        bounded: follow no links, of large files compare sizes and beginnings, stop after `MAX_DIFF_CHARS`.
    """
    left, right = _code_files(first), _code_files(second)
    if not left or not right:
        return ""
    pieces: list[str] = []
    characters = 0
    for name in sorted(left.keys() | right.keys()):
        if bounded and characters > MAX_DIFF_CHARS:
            pieces.append("(more files differ, or were not compared)\n")
            break
        old, new = (_content(files.get(name), bounded=bounded) for files in (left, right))
        if old == new:
            continue
        texts = [_lines(name, content) for content in (old, new)]
        if texts[0] is None or texts[1] is None:
            pieces.append(f"files differ: {name}\n")
            characters += len(name)
            continue
        names = (
            f"a/{name}" if old is not None else "/dev/null",
            f"b/{name}" if new is not None else "/dev/null",
        )
        lines = list(difflib.unified_diff(texts[0], texts[1], *names))
        lines = lines or [f"files differ: {name}\n"]  # an empty file, or the end of the last line
        characters += sum(map(len, lines))
        pieces += lines
    return "".join(pieces)


def has_code(folder: str) -> bool:
    """Whether a code folder holds files of code."""
    return bool(_code_files(folder))


def has_archive(folder: str) -> bool:
    """Whether a code folder holds a launcher's archive."""
    return os.path.exists(f"{folder}/{MANIFEST_NAME}")


def _code_files(folder: str) -> dict[str, str]:
    found = {os.path.relpath(path, folder): path for path in files_below(folder)}
    return {name: path for name, path in found.items() if name not in PARAMETER_FILES | LAUNCH_FILES}


def _content(path: str | None, *, bounded: bool) -> bytes | None:
    if path is None:
        return None
    try:
        with open_plain(path, links=not bounded) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= MAX_CODE_BYTES:
                return file.read(MAX_CODE_BYTES)
            told = b"\0%d " % size  # not text: it is only compared
            return told + (file.read(MAX_CODE_BYTES) if bounded else _digest(file))
    except (OSError, BrokenFileError):
        return b""


def _digest(file: BinaryIO) -> bytes:
    digest, left = hashlib.sha256(), written_bytes(file)
    while left > 0 and (chunk := file.read(min(left, MAX_CODE_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.digest()


def _lines(name: str, content: bytes | None) -> list[str] | None:
    """Lines of a file, each with its end; None when they are not to be compared."""
    if content is None:
        return []
    if len(content) > MAX_CODE_BYTES or os.path.splitext(name)[1].lower() in NO_LINES:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    if _BINARY.search(text) or any(len(line) > MAX_LINE for line in lines):
        return None
    return [f"{line}\n" for line in lines]


@dataclass(slots=True)
class Group:
    """Runs that have the same values of some parameters.

    Attributes:
        values: of these parameters.
        states: state → how many runs are in it.
        numbers: last value of the metric of each run that has it.
        seeds: its hyper-parameter `seed` as text, of these runs; None without one.
    """

    values: tuple[object, ...]
    states: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    seeds: list[str | None] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The values as texts that tell groups apart."""
        return [clean(group_text(value)) for value in self.values]


def group_runs(records: Iterable[Record], by: Sequence[str], metric: str | None, now: float) -> list[Group]:
    """Runs by the values of fields, parameters or metrics (see `grouping`), in the order of these."""
    found: dict[tuple[str, ...], Group] = {}
    for record in records:
        values = tuple(_value(record, name, now) for name in by)
        group = found.setdefault(tuple(map(group_text, values)), Group(values))
        group.states[record.shown_state(now)] += 1
        value = None if metric is None else last_value(record, metric)
        if isinstance(value, int | float):
            group.numbers.append(float(value))
            seed = _value(record, SEED, now)
            group.seeds.append(None if seed is None else str(seed))
    return [found[key] for key in sorted(found, key=lambda texts: list(map(group_order, texts)))]


def _value(record: Record, name: str, now: float) -> object:
    """A field, parameter or metric; of ten thousand runs no JSON is parsed for a parameter that all have."""
    if name in FIELDS or name in ALIASES:
        return RowView(record, now).get(name)
    return parameter_or_metric(record.hyper_json, record.metrics_json, name)


def last_value(record: Record, metric: str) -> object:
    """The last value of a metric, as `record.metrics` has it; None without one."""
    return parameter_or_metric(None, record.metrics_json, metric)


class Rooted(Protocol):
    """Whatever lies in a data root, such as a `Database`."""

    data_root: Path


@dataclass(slots=True)
class Summary:
    """One metric of some runs.

    Attributes:
        runs: that have it.
        rows: with a number.
        last: its last value in the newest run that has it.
        low: least finite number, None where there is none; `high` likewise.
        high: largest.
    """

    runs: int = 0
    rows: int = 0
    last: object = None
    low: float | None = None
    high: float | None = None


def summaries(database: Rooted, records: Sequence[Record]) -> dict[str, Summary]:
    """Each metric of some runs, given oldest first, in the order of the files' columns.

    A run whose table is broken is warned about and left out; one without rows has no metrics.
    """
    found: dict[str, Summary] = {}
    for record, columns in _tables(database, records):
        for name, numbers in columns.items():
            one = found.setdefault(name, Summary())
            one.runs += 1
            one.rows += len(numbers)
            one.last = record.metrics.get(name, numbers[-1] if numbers else one.last)
            finite = [value for value in numbers if math.isfinite(value)]
            one.low = min([*finite, *([] if one.low is None else [one.low])], default=None)
            one.high = max([*finite, *([] if one.high is None else [one.high])], default=None)
    return found


def _tables(database: Rooted, records: Sequence[Record]) -> Iterator[tuple[Record, dict[str, list[float]]]]:
    for record in records:
        try:
            columns = _numbers(database, record)
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            warn_broken(error)
            continue
        yield record, {name: column for name, column in columns.items() if name not in CLOCKS}


def _numbers(database: Rooted, record: Record) -> dict[str, list[float]]:
    table = f"{database.data_root}/{LOG}/{record.table}"
    if not record.parent:
        return read_numbers(f"{table}/{record.index}/{PROGRESS_FILE}")
    chain = chain_of(database.data_root, record.table, record.index)
    columns = read_chain(chain, table, chain_names(chain, table))
    return {name: column[column == column].tolist() for name, column in columns.items()}  # noqa: PLR0124 - NaN


def mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean of some runs, and half of its 95 % interval (Student's t); None of it for a single run."""
    count = len(values)
    if not count:
        return None, None
    mean = sum(values) / count
    if count == 1:
        return mean, None
    spread = math.hypot(*(value - mean for value in values)) / math.sqrt((count - 1) * count)  # no overflow
    t = _T[count - 2] if count - 1 <= len(_T) else 1.96 + 2.42 / (count - 1)
    return mean, t * spread


@dataclass(frozen=True, slots=True)
class Choice:
    """What is known of choosing the first of some groups.

    Attributes:
        best: its place among them.
        runs: of the group with the fewest runs, of those that were compared.
        kept: share of the draws in which it stays first.
        enough: runs a group with which that is `SURE`; None: more than the largest of `COUNTS`.
        flatters: by how much its mean is too good at least, in units of the metric; 0 where it is next to
            nothing, and where all runs have the same seed.
        others: its runs on seeds that no other group has.
    """

    best: int
    runs: int
    kept: float
    enough: int | None
    flatters: float
    others: tuple[float, ...]


def less_is_better(metric: str) -> bool:
    """Whether a metric's name says that small values are good ones."""
    return any(metric.lower().endswith(word) or f"{word}/" in metric.lower() for word in _LESS_IS_BETTER)


def judge(groups: Sequence[Group], by: Sequence[str], *, minimize: bool) -> Choice | None:
    """What the runs say of choosing the best group; None where they say nothing.

    That is so of groups by seed or by what nobody chooses (the state), where fewer than two groups have two
    runs, and where a single run is the best. A group with a run that diverged has no mean, and is not chosen.

    Args:
        groups: of runs.
        by: what they are made by.
        minimize: the smallest mean is the best.
    """
    if any(name.rpartition(".")[2] == SEED for name in by) or {*by} <= {*FIELDS, *ALIASES}:
        return None
    sign = -1.0 if minimize else 1.0
    values = [
        [sign * number for number in group.numbers] if all(map(math.isfinite, group.numbers)) else []
        for group in groups
    ]
    order = sorted(
        (place for place, of in enumerate(values) if len(of) > 1), key=lambda at: -_mean(values[at])
    )
    singles = [of[0] for of in values if len(of) == 1]
    if len(order) < 2 or max(singles, default=-math.inf) > _mean(values[order[0]]):  # noqa: PLR2004
        return None
    compared = [_stretched(values[place]) for place in order[:MAX_GROUPS]]
    draws = list(_draws(compared, None))
    kept = sum(winner == 0 for winner, _ in draws) / len(draws)
    lost = sum(mean - _mean(compared[winner]) for winner, mean in draws) / len(draws)
    flatters = (
        0.0 if lost <= _negligible(compared[0]) or _one_seed(groups[place] for place in order) else lost
    )
    fewest = min(map(len, compared))
    enough = _enough(compared, kept, fewest)
    return Choice(order[0], fewest, kept, enough, flatters, _others(groups, order[0]))


def _negligible(values: Sequence[float]) -> float:
    return NEGLIGIBLE * _spread(values)[1] / math.sqrt(len(values))


def _one_seed(groups: Iterable[Group]) -> bool:
    seeds = {seed for group in groups for seed in group.seeds}
    return len(seeds) == 1 and None not in seeds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stretched(values: Sequence[float]) -> list[float]:
    """Values further from their mean, so that those drawn from a few spread as what the few are from."""
    mean, factor = _mean(values), math.sqrt(len(values) / (len(values) - 1))
    return [mean + (value - mean) * factor for value in values]


def _spread(values: Sequence[float]) -> tuple[float, float]:
    mean = _mean(values)
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values))  # no overflow


def _draws(groups: Sequence[Sequence[float]], count: int | None) -> Iterator[tuple[int, float]]:
    """The group with the largest mean, and that mean, of each of `DRAWS`; None: as many runs as there are."""
    random = Random(0)  # noqa: S311 - the same answer each time
    spreads = [_spread(group) for group in groups]
    for _ in range(DRAWS):
        means = []
        for group, (centre, spread) in zip(groups, spreads, strict=True):
            size = count or len(group)
            means.append(
                sum(random.choices(group, k=size)) / size
                if size <= EXACT
                else random.gauss(centre, spread / math.sqrt(size))
            )
        mean = max(means)
        first = [place for place, one in enumerate(means) if one == mean]
        yield first[0] if len(first) == 1 else random.choice(first), mean


def _enough(groups: Sequence[Sequence[float]], kept: float, fewest: int) -> int | None:
    if kept >= SURE:
        return max(fewest, LEAST)
    for count in COUNTS:
        if count > fewest and sum(winner == 0 for winner, _ in _draws(groups, count)) >= SURE * DRAWS:
            return count
    return None


def _others(groups: Sequence[Group], best: int) -> tuple[float, ...]:
    chose = {seed for place, group in enumerate(groups) if place != best for seed in group.seeds}
    mine = groups[best]
    return tuple(
        number
        for number, seed in zip(mine.numbers, mine.seeds, strict=True)
        if seed is not None and seed not in chose and math.isfinite(number)
    )


def group_name(by: Sequence[str], group: Group) -> str:
    """The values of a group, for people."""
    return group_label(list(map(clean, by)), group.texts)


def told(choice: Choice, name: str) -> list[str]:
    """A line on whether the runs are enough, and one on what to report where that is another value.

    Args:
        choice: what `judge` found.
        name: of the group, for people.
    """
    share = f"{name} stays first in {choice.kept:.0%} of bootstrap draws"
    runs = f"{choice.runs} runs a group"
    if choice.kept >= SURE and choice.runs < LEAST:
        first = f"{share}, but {runs} are too few to say how they spread: make it {LEAST} or more"
    elif choice.kept >= SURE:
        first = f"{share}: {runs} are enough to choose it"
    elif choice.enough is None:
        more = f", and {COUNTS[-1]} would not be either" if choice.runs < COUNTS[-1] else ""
        first = f"{share}: {runs} are not enough to choose it{more}"
    else:
        first = f"{share}: {runs} are not enough to choose it, about {choice.enough} would be"
    return [first, *_honest(choice, name)]


def _honest(choice: Choice, name: str) -> list[str]:
    if len(choice.others) > 1:
        mean, interval = mean_and_interval(choice.others)
        runs = f"{len(choice.others)} runs on seeds that no other group has"
        return [f"report {name} by the {runs}: {clean(mean)} ± {interval:.2g}"]
    if not choice.flatters:
        return []
    better = f"the best of several looks better than it is, {name} by {choice.flatters:.2g} or more"
    return [f"{better}: run it with new seeds and report those"]
