"""Filter language of `where=`.

`lr == 0.001 and env_id == 'Hopper-v4' and state == 'finished'`. Names are fields of a run (`FIELDS`), then
hyper-parameters (dotted ones too), then the last values of metrics; a slash or dash between names belongs to
the name (`perf/mse < 0.1`), and Python keywords that the language does not use are names (`return`,
`lambda`). Any other name is written in backticks. Columns of `rla ls` (`took`, `step`) are names unless a
run has such a name itself. `run` is the date of a run, and also equals its whole index. The language has
only comparisons, `and`, `or`, `not`, `in`, `is None`, literals and lists: nothing is called. `nan` and
`inf` are numbers.

A run without the name fails every comparison with it, also `!=` and `not in`; `name is None` holds. A
number equals a text that spells it, because old databases keep values as text; a date is compared as its
Unix seconds (`time > '2026/11/21'`).
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.run_index import RunIndex

Row = Mapping[str, Any]
Test = Callable[[Row], Any]
_TOKENS = re.compile(  # a quoted text, left as it is; a name in backticks; any other name
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?P<quoted>[^`]*)`|(?P<name>[^\W\d]\w*(?:[./-]\w+)*(?:@[A-Za-z][\w-]*)?)"""
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


class _Missing:
    """Type of `MISSING`, the value of a name that a run lacks; distinct from None."""

    def __bool__(self) -> bool:
        return False


MISSING = _Missing()


class Where:
    """A compiled filter.

    Attributes:
        names: names in the filter.
        may_lack: names compared with None, so that no run needs to have them.
        texts: names compared with another name, which may be texts that lack their quotes.
        full: name in the filter → full name, where they differ.
    """

    def __init__(self, text: str) -> None:
        """Compile the filter.

        Raises:
            ArgumentError: the text is no filter; the message says why and shows an example.
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
        """Whether a row passes; `row` maps names to values."""
        return bool(self._test(row))

    def _quote(self, match: re.Match[str]) -> str:
        quoted, name = match["quoted"], match["name"]
        if quoted is None and (
            name is None or not ("/" in name or "@" in name or _FOREIGN & {*re.split("[.-]", name)})
        ):
            return match[0]
        known = f"quoted_{len(self._quoted)}__"
        self._quoted[known] = name if quoted is None else quoted
        return known

    def _compile(self, node: ast.expr) -> Test:  # noqa: PLR0911 - one kind of node a case
        if isinstance(node, ast.BoolOp):
            tests = [self._compile(value) for value in node.values]
            join = all if isinstance(node.op, ast.And) else any
            if len(tests) == 2 and join is all:  # noqa: PLR2004 - the most common case, for 100,000 rows
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
        return lambda row: row.get(self.full.get(name, name), MISSING)

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
        if len(steps) == 1:  # the most common case, for 100,000 rows
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
    """Abbreviated commit hashes in a comparison of `commit`."""
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
    """Comparison of a commit with hashes, some of which are abbreviated."""
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
    return left is not MISSING and right is not MISSING


def _value(found: object) -> object:
    return None if found is MISSING else found


def _contains(container: object, value: object) -> bool:
    if isinstance(container, str):
        return isinstance(value, str) and value in container
    if isinstance(container, list | tuple):
        return any(
            a == b or (_is_nan(a) and _is_nan(b)) for a, b in (_alike(item, value) for item in container)
        )
    return False


def _alike(left: object, right: object) -> tuple[Any, Any]:
    """Both sides, with a text converted if the other side is a number."""
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
