"""Opening of a run in a script without a logger."""

from __future__ import annotations

import ast
import keyword

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.script_syntax import dotted_name
from rla_client.cli.integrate.source_edits import SourceEdits

_PARSES = frozenset({"parse_args", "parse_known_args", "cli", "parse"})
_PARSERS = frozenset({"tyro", "simple_parsing"})  # modules with `cli` and `parse`
_COUNTS = frozenset({"range", "trange", "count", "enumerate"})
_READS = frozenset({"item", "mean"})  # methods without side effects
_NUMBERS = frozenset({"float", "int", "round", "abs", "len", "sum", "min", "max"})  # the same for functions
_MEANS = frozenset({"np.mean", "numpy.mean", "torch.mean", "statistics.mean"})
_OF_MANY = frozenset(
    {"sum", "min", "max", *_MEANS}
)  # allowed only for slices and attributes, because they would exhaust an iterator
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def open_run(source: SourceEdits, changes: ScriptChanges, table: str, *, prints: bool) -> None:
    """Open a run after the line that parses the arguments; log numbers that are printed in loops."""
    parsed = _parsed(source.tree)
    printed = _printed(source.tree) if prints else []
    if parsed is None and not printed:
        return
    if parsed is not None:
        statement, name = parsed
        opening = f"rla_client.init({_quoted(table)}, config={name})"
        if not source.insert_after(statement, opening):
            changes.by_hand.append(f"line {statement.lineno}: {opening}")
    lines = 0
    for print_statement, values, step in printed:
        found = ", ".join(f"{_quoted(_name(value))}: {source.text_of(value)}" for value in values)
        lines += source.insert_after(
            print_statement, f"rla_client.log({{{found}}}" + (f", step={step})" if step else ")")
        )
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    ours = "import rla_client"
    if parsed is None:
        ours = source.line_end.join([ours, "", f"rla_client.init({_quoted(table)})"])
    if not imports or not source.insert_after(imports[-1], ours):
        source.insert_at_top(ours)
    changes.libraries.append("its arguments" if not lines else f"{lines} line(s) that it prints")


def _quoted(text: str) -> str:
    return repr(text) if {'"', "\\"} & set(text) or not text.isprintable() else f'"{text}"'


def _parsed(tree: ast.Module) -> tuple[ast.stmt, str] | None:
    """The first statement that assigns the parsed arguments, and the assigned name."""
    makers: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, _Function):
            continue
        names = {name for node in ast.walk(function) if (name := _assigned(node, set())) is not None}
        for node in ast.walk(function):
            value = node.value if isinstance(node, ast.Return) else None
            if value is not None and (dotted_name(value) in names or _parses(value, set())):
                makers.add(function.name)
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, _Function) and function.name in makers
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        name = None if node in inside else _assigned(node, makers)
        if name is not None and isinstance(node, ast.stmt):
            return node, name
    return None


def _assigned(node: ast.AST, makers: set[str]) -> str | None:
    """Name to which a statement assigns the result of a parser; None for other statements."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        target: ast.expr = node.target
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
    else:
        return None
    if node.value is None or not _parses(node.value, makers):
        return None
    if isinstance(target, ast.Tuple) and target.elts:  # parse_known_args
        target = target.elts[0]
    return dotted_name(target) or None


def _parses(value: ast.expr, makers: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id in makers
    if not isinstance(value.func, ast.Attribute) or value.func.attr not in _PARSES:
        return False
    return value.func.attr.startswith("parse_") or dotted_name(value.func.value) in _PARSERS


def _printed(tree: ast.Module) -> list[tuple[ast.stmt, list[ast.expr], str]]:
    """Statements in loops that print numbers, each with the numbers and the name of the loop's counter."""
    found: list[tuple[ast.stmt, list[ast.expr], str]] = []
    logged: dict[int, set[str]] = {}  # block → names logged in it

    def visit(node: ast.AST, counters: tuple[str, ...], loops: int, around: ast.AST) -> None:
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            loops += 1
            counter = _counter(node)
            counters = (*counters, counter) if counter else counters
        elif isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            counters, loops = (), 0
        elif loops and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            before = logged.setdefault(id(around), set())
            values = [one for one in _values(node.value, counters) if _name(one) not in before]
            before.update(map(_name, values))
            if values:
                found.append((node, values, counters[0] if loops == 1 == len(counters) else ""))
        for child in ast.iter_child_nodes(node):
            visit(child, counters, loops, node)

    visit(tree, (), 0, tree)
    return found


def _counter(loop: ast.For | ast.While | ast.AsyncFor) -> str:
    if isinstance(loop, ast.While):
        return ""
    calls = {
        dotted_name(node.func).rpartition(".")[2]
        for node in ast.walk(loop.iter)
        if isinstance(node, ast.Call)
    }
    if not calls & _COUNTS:
        return ""
    target = loop.target
    if isinstance(target, ast.Tuple) and target.elts and "enumerate" in calls:
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else ""


def _values(call: ast.Call, counters: tuple[str, ...]) -> list[ast.expr]:
    """Values that a call of `print` formats and that can be evaluated again without side effects."""
    if dotted_name(call.func) != "print":
        return []
    parts: list[ast.expr] = []
    for argument in call.args:
        if isinstance(argument, ast.JoinedStr):
            parts += [one.value for one in argument.values if isinstance(one, ast.FormattedValue)]
        elif isinstance(argument, ast.Call) and _is_format(argument):
            parts += argument.args
        elif isinstance(argument, ast.BinOp) and _is_text(argument.left) and isinstance(argument.op, ast.Mod):
            right = argument.right
            parts += right.elts if isinstance(right, ast.Tuple) else [right]
        else:
            parts.append(argument)
    plain = [part for part in parts if _is_plain(part) and _name(part) not in counters]
    named: dict[str, ast.expr] = {}
    for part in sorted(plain, key=lambda part: not isinstance(part, ast.Name | ast.Attribute)):
        named.setdefault(_name(part), part)  # a name itself takes precedence over a sum with it
    return [part for part in plain if _name(part) and named[_name(part)] is part]


def _is_format(call: ast.Call) -> bool:
    """Whether a call is `"…".format(…)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "format"
        and isinstance(call.func.value, ast.Constant)
    )


def _is_plain(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        inner = _read_by(value)
        if dotted_name(value.func) in _OF_MANY and not isinstance(inner, ast.Subscript | ast.Attribute):
            return False
        return inner is not None and _is_plain(inner)
    if isinstance(value, ast.BinOp):
        sides = [side for side in (value.left, value.right) if not _is_number(side)]
        return isinstance(value.op, _ARITHMETIC) and bool(sides) and all(map(_is_plain, sides))
    if isinstance(value, ast.Subscript):  # such as the last values of a list
        return _is_plain(value.value) and all(
            isinstance(node, ast.Slice | ast.UnaryOp | ast.USub | ast.Load) or _is_number(node)
            for node in ast.walk(value.slice)
        )
    if isinstance(value, ast.Attribute):
        return _is_plain(value.value)
    return isinstance(value, ast.Name) and not keyword.iskeyword(value.id)


def _is_text(value: ast.AST) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_number(value: ast.AST) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in {int, float}


def _read_by(call: ast.Call) -> ast.expr | None:
    """Argument of a call without side effects: `loss` of `loss.item()` and of `np.mean(loss)`."""
    if call.keywords:
        return None
    if not call.args and isinstance(call.func, ast.Attribute) and call.func.attr in _READS:
        return call.func.value
    reads = dotted_name(call.func) in _NUMBERS | _MEANS
    return call.args[0] if reads and len(call.args) == 1 else None


def _name(value: ast.expr) -> str:
    """Name to log a value under: `group/name` for an attribute, the first name in a sum."""
    if isinstance(value, ast.Call):
        inner = _read_by(value)
        return "" if inner is None else _name(inner)
    if isinstance(value, ast.BinOp):
        return _name(value.left) or _name(value.right)
    if isinstance(value, ast.Subscript):
        return _name(value.value)
    return dotted_name(value).removeprefix("self.").replace(".", "/")
