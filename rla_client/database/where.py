"""Which runs a filter (`where=`) and a date (`since=`) mean.

The filter language is Python comparisons over the fields of a run:
`lr == 0.001 and env_id == 'Hopper-v4' and state == 'finished'`. Names are the fields of a run
(`FIELDS`), then its hyper-parameters (dotted ones too), then the last values of its metrics; a slash or a
dash between names belongs to the name (`perf/mse < 0.1`, `time-step > 100`), and words that mean something
to Python alone are names (`return`, `lambda`). Any other name stands in backticks: `` `my metric` < 0.1 ``.
The names of columns that `rla ls` prints (`took`, `step`) are understood, too, where no hyper-parameter or
metric is called so. `run` is the date of a run, and equal to its whole index, too, which is what
`rla ls --json` calls so. Only comparisons, `and`, `or`, `not`, `in`, `is None`, literals and lists are
understood: nothing is called and no attribute of an object is touched. `nan` and `inf` are numbers, and
`loss == nan` holds where the loss is NaN.

A run without the name fails each comparison with it, `!=` and `not in` too (`name is None` holds). Numbers
and text that spells the same number are equal, because old databases keep values as text; a date is the
number of its seconds (`time > '2026/11/21'`).

A filter makes no `Record` of each row of the catalogue: of 100,000 few are wanted. A hyper-parameter or a
metric is cut out of the JSON text that the catalogue keeps, where that is flat; fields of a run, nested
parameters, and runs whose state this machine may know better go by `RowView`.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.run_file import LIVE_STATES
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.spelling import ends_in, full_name, unknown
from rla_client.database.catalogue import COLUMNS, Catalogue, record_of
from rla_client.database.records import ALIASES, FIELDS, Record, RowView, with_live_states
from rla_client.run.parameters.hyper_params import HyperParams

Since = str | float | datetime | None
Row = Mapping[str, Any]
Test = Callable[[Row], Any]
Cells = tuple[Any, ...]  # of a row of the catalogue
_TOKENS = re.compile(  # text is left as it is; a name in backticks; any other name
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?P<quoted>[^`]*)`|(?P<name>[^\W\d]\w*(?:[./-]\w+)*)"""
)
_WORDS = frozenset({"and", "or", "not", "in", "is", "None", "True", "False"})  # of the language
_FOREIGN = frozenset(keyword.kwlist) - _WORDS
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NAN = float("nan")
_NUMBERS = {"nan": _NAN, "inf": float("inf")}
_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d")
_RECORD_DATE = re.compile(r"(\d{4}-\d\d-\d\d)-(\d\d)-(\d\d)-(\d\d)(?:-(\d{6}))?")  # of an index
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")
MAX_LENGTH = 10_000
MAX_DEPTH = 100
_TEXTS = ("table_name", "idx", "hyper", "metrics")  # what `Catalogue.texts` gives
_HYPER, _METRICS, _STATE = (COLUMNS.index(name) for name in ("hyper", "metrics", "state"))
FEW = 10  # runs are read one by one where no more than one in so many passes
_FIELDS = frozenset((*FIELDS, *ALIASES))
_decode = json.JSONDecoder(object_hook=HyperParams).raw_decode


class _Missing:
    """What a run has that lacks a name: no value, not even None."""

    def __bool__(self) -> bool:
        return False


_MISSING = _Missing()


class Where:
    """A compiled filter.

    Attributes:
        names: that it asks for.
        may_lack: those of them that it compares with None, so that no run need have them.
        texts: those of them that are compared with another name, so that they may be meant as text.
        full: how rows spell them, where otherwise.
    """

    def __init__(self, text: str) -> None:
        """Compile.

        Raises:
            ArgumentError: it is not a filter; the message shows what is understood.
        """
        self.text = text
        self.names: set[str] = set()
        self.may_lack: set[str] = set()
        self.texts: set[str] = set()
        self.full: dict[str, str] = {}
        self._quoted: dict[str, str] = {}
        if len(text) > MAX_LENGTH:
            raise _fault(text[:40] + "…", f"it is longer than {MAX_LENGTH} characters")
        source = _TOKENS.sub(self._quote, text.strip())
        try:
            tree = ast.parse(source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error)
            if re.search(r"[^=!<>]=[^=]", text):
                reason = "a single = was used, compare with =="
            elif "&&" in source or "||" in source:
                reason = "&& and || are written `and` and `or`"
            raise _fault(text, reason if source else "it is empty") from error
        if _depth(tree) > MAX_DEPTH:
            raise _fault(text[:40] + "…", f"it is nested more than {MAX_DEPTH} deep")
        self._test = self._compile(tree.body)

    def __call__(self, row: Row) -> bool:
        """Whether a row, given by names, passes."""
        return bool(self._test(row))

    def _quote(self, match: re.Match[str]) -> str:
        told, name = match["quoted"], match["name"]
        if told is None and (name is None or not ("/" in name or _FOREIGN & {*re.split("[.-]", name)})):
            return match[0]
        known = f"quoted_{len(self._quoted)}__"
        self._quoted[known] = name if told is None else told
        return known

    def _compile(self, node: ast.expr) -> Test:  # noqa: PLR0911 - one kind of node a case
        if isinstance(node, ast.BoolOp):
            tests = [self._compile(value) for value in node.values]
            join = all if isinstance(node.op, ast.And) else any
            if len(tests) == 2 and join is all:  # noqa: PLR2004 - 100,000 rows are looked at, mostly so
                first, second = tests
                return lambda row: bool(first(row) and second(row))
            return lambda row: join(test(row) for test in tests)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._compile(node.operand)
            return lambda row: not inner(row)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return self._number(node)
        if isinstance(node, ast.Compare):
            return self._compile_compare(node)
        if isinstance(node, ast.Constant):
            value = node.value
            return lambda _: value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return self._lookup(self._dashed(node))
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            parts = [self._compile(part) for part in node.elts]
            return lambda row: [part(row) for part in parts]
        return self._compile_name(node)

    def _number(self, node: ast.UnaryOp) -> Test:
        operand = node.operand
        number = operand.value if isinstance(operand, ast.Constant) else _NUMBERS.get(ast.unparse(operand))
        if not isinstance(number, int | float):
            raise _fault(self.text, "a sign may only stand before a number")
        value = -number if isinstance(node.op, ast.USub) and number is not _NAN else number
        return lambda _: value

    def _compile_name(self, node: ast.expr) -> Test:
        if isinstance(node, ast.Name) and node.id in _NUMBERS:
            number = _NUMBERS[node.id]
            return lambda _: number
        return self._lookup(self._name(node))

    def _dashed(self, node: ast.expr) -> str:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return f"{self._dashed(node.left)}-{self._dashed(node.right)}"
        return self._name(node)

    def _name(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            raise _fault(self.text, f"{ast.unparse(node)!r} is not understood")
        return ".".join([self._quoted.get(node.id, node.id), *reversed(parts)])

    def _lookup(self, name: str) -> Test:
        self.names.add(name)
        return lambda row: row.get(self.full.get(name, name), _MISSING)

    def _compile_compare(self, node: ast.Compare) -> Test:
        nodes = [node.left, *node.comparators]
        date = self._compile_steps(node, nodes)
        if len(node.ops) > 1 or not any(map(_is_run, nodes)) or not any(map(_holds_index, nodes)):
            return date
        index = self._compile_steps(node, [ast.Name("index") if _is_run(side) else side for side in nodes])
        join = all if isinstance(node.ops[0], ast.NotEq | ast.NotIn) else any
        return lambda row: join(test(row) for test in (date, index))

    def _compile_steps(self, node: ast.Compare, nodes: list[ast.expr]) -> Test:
        sides = [self._compile(side) for side in nodes]
        short = _short_commits(node, nodes)
        if short:
            return _by_beginning(node.ops[0], sides if _is_commit(nodes[0]) else sides[::-1], short)
        if all(isinstance(side, ast.Name) for side in nodes):
            self.texts.update(map(self._name, nodes[1:]))
        with_none = any(isinstance(side, ast.Constant) and side.value is None for side in nodes)
        if with_none:
            named = [side for side in nodes if isinstance(side, ast.Name | ast.Attribute | ast.BinOp)]
            self.may_lack.update(map(self._dashed, named))
        steps = [
            (_comparer(op, with_none=with_none), sides[i], sides[i + 1]) for i, op in enumerate(node.ops)
        ]
        if len(steps) == 1:  # 100,000 rows are compared, mostly so
            ((compare, first, second),) = steps
            return lambda row: compare(first(row), second(row))
        return lambda row: all(compare(left(row), right(row)) for compare, left, right in steps)


def _depth(tree: ast.AST) -> int:
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return deepest


def _is_run(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "run"


def _is_commit(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "commit"


def _short_commits(node: ast.Compare, nodes: list[ast.expr]) -> tuple[str, ...]:
    """The beginnings of commits' names, as git shows them, that a comparison asks for."""
    if len(node.ops) > 1:
        return ()
    op, (left, right) = node.ops[0], nodes
    if isinstance(op, ast.Eq | ast.NotEq) and (_is_commit(left) or _is_commit(right)):
        asked = nodes
    elif isinstance(op, ast.In | ast.NotIn) and _is_commit(left):
        asked = right.elts if isinstance(right, ast.List | ast.Tuple | ast.Set) else []
    else:
        return ()
    texts = [side.value for side in asked if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    return tuple(text for text in texts if _SHORT_COMMIT.fullmatch(text))


def _by_beginning(op: ast.cmpop, sides: list[Test], beginnings: tuple[str, ...]) -> Test:
    """Whether a commit begins with one of some texts, or else is what it is compared with; or neither."""
    commit, asked = sides
    negated = isinstance(op, ast.NotEq | ast.NotIn)
    same = _comparer(ast.In() if isinstance(op, ast.In | ast.NotIn) else ast.Eq(), with_none=False)

    def holds(row: Row) -> bool:
        value = commit(row)
        begins = isinstance(value, str) and value.startswith(beginnings)
        return (begins or same(value, asked(row))) is not negated

    return holds


def _holds_index(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(map(_holds_index, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(RunIndex.parse(node.value))


def _comparer(op: ast.cmpop, *, with_none: bool) -> Callable[[Any, Any], bool]:
    if isinstance(op, ast.Is | ast.IsNot):
        is_same = isinstance(op, ast.Is)
        return lambda left, right: (_value(left) is _value(right)) == is_same
    if isinstance(op, ast.In | ast.NotIn):
        is_in = isinstance(op, ast.In)
        return lambda left, right: _both(left, right) and _contains(right, left) == is_in
    compare, ordered = _COMPARE[type(op)], not isinstance(op, ast.Eq | ast.NotEq)

    def compared(left: object, right: object) -> bool:
        if with_none:
            left, right = _value(left), _value(right)
        if not _both(left, right) or (ordered and (left is None or right is None)):
            return False
        if left is _NAN or right is _NAN:
            return not ordered and bool(compare(_is_nan(left), _is_nan(right)))
        if isinstance(left, str) is not isinstance(right, str):
            left, right = _alike(left, right)
            if _is_nan(left) and _is_nan(right):  # 'nan' as `--json` spells it
                return not ordered and bool(compare(0, 0))
        try:
            return bool(compare(left, right))
        except TypeError:
            return False

    return compared


def _both(left: object, right: object) -> bool:
    return left is not _MISSING and right is not _MISSING


def _value(found: object) -> object:
    return None if found is _MISSING else found


def _contains(container: object, value: object) -> bool:
    if isinstance(container, str):
        return isinstance(value, str) and value in container
    if isinstance(container, list | tuple):
        return any(
            a == b or (_is_nan(a) and _is_nan(b)) for a, b in (_alike(item, value) for item in container)
        )
    return False


def _alike(left: object, right: object) -> tuple[Any, Any]:
    """Make a number out of text that is compared with a number."""
    try:
        if isinstance(left, str) and isinstance(right, int | float):
            return _number_of(left, right), right
        if isinstance(right, str) and isinstance(left, int | float):
            return left, _number_of(right, left)
    except ValueError:
        pass
    return left, right


def _number_of(text: str, other: float) -> float:
    if isinstance(other, bool) and text in {"True", "False"}:
        return text == "True"
    if not _DATE.match(text):
        return float(text)
    written = text.replace("/", "-")
    parts = _RECORD_DATE.fullmatch(written)
    if parts is not None:
        written = f"{parts[1]}T{parts[2]}:{parts[3]}:{parts[4]}.{parts[5] or '000000'}"
    return datetime.fromisoformat(written).timestamp()


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _fault(text: str, reason: str) -> ArgumentError:
    message = (
        f"the filter {text!r} is not understood: {reason}\n"
        "example: lr == 0.001 and env_id in ['Hopper-v4', 'Ant-v4'] and perf/mse < 0.1"
    )
    return ArgumentError(message)


def full_names(
    names: AbstractSet[str],
    records: Sequence[Record] | _Records,
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


def spell(test: Where, records: Sequence[Record] | _Records) -> None:
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


def _any_has(records: Sequence[Record] | _Records, name: str) -> bool:
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
    if since[-1:] in units and since[:-1].replace(".", "", 1).isdecimal():
        return now - float(since[:-1]) * units[since[-1]]
    try:
        return datetime.fromisoformat(since.replace("/", "-")).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{since!r} is not a date; write 2026/11/21, 2026-11-21T09:30, or an age such as 36h, 7d"
        raise ArgumentError(message) from error


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


def _record_of_texts(row: Cells) -> Record:
    known = dict(zip(_TEXTS, row, strict=True))
    return record_of(tuple("" if name == "kinds" else known.get(name) for name in COLUMNS))


class _Records:
    """Rows as records, each made when it is looked at, the newest first."""

    def __init__(self, rows: Sequence[Cells], record: Callable[[Cells], Record]) -> None:
        self._rows = rows
        self._record = record

    def __len__(self) -> int:
        return len(self._rows)

    def __reversed__(self) -> Iterator[Record]:
        return map(self._record, reversed(self._rows))


class _Scanned(dict[str, Any]):
    """A row by name, as far as a filter asks: `get` alone.

    Args:
        hyper: where in a row the hyper-parameters are.
        metrics: likewise; a field of the run asks for a row in the order of `COLUMNS`.
        now: Unix seconds.
    """

    row: Cells

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
    if found is _MISSING:
        found = value_in(metrics, name, nested=False)
    return default if found is _MISSING else found


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return f"{json.dumps(name)}:"


def value_in(text: str | None, name: str, *, nested: bool = True) -> object:
    """The value of a name in JSON text of `records.to_json`; `_MISSING` without one.

    A quote inside a text is escaped, so what follows a brace or a comma and looks like a key is one.
    """
    if not text:
        return _MISSING
    key = _spelled(name)
    at = text.find(key)
    if at < 0 and not (nested and "." in name):
        return _MISSING
    if text.find("{", 1) >= 0:
        whole = json.loads(text, object_hook=HyperParams)
        try:
            return whole.dotted(name) if nested else whole[name]
        except KeyError:
            return _MISSING
    while at > 0 and text[at - 1] not in "{,":
        at = text.find(key, at + 1)
    return _decode(text, at + len(key))[0] if at > 0 else _MISSING
