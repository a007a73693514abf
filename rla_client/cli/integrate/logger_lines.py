"""Rewriting of the lines of a training script that log.

A `SummaryWriter` and wandb are imported from our adapters, a model of stable-baselines3 learns with our
callback. A script that has none of these opens a run behind the line that parses its arguments, and logs what
it prints in its loops.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from dataclasses import dataclass, field

from rla_client.cli.integrate.source_edits import Source

WRITERS = frozenset({
    "torch.utils.tensorboard", "torch.utils.tensorboard.writer", "tensorboardX", "tensorboardX.writer",
})  # fmt: skip
WRITER = "SummaryWriter"
OUR_WRITER = "from rla_client.integrations.tensorboard import SummaryWriter"
OUR_WANDB = "rla_client.integrations.wandb"
SB3 = frozenset({"stable_baselines3", "sb3_contrib"})
CALLBACK = "RLACallback()"
OUR_CALLBACK = "from rla_client.integrations.sb3 import RLACallback"
_PARSES = frozenset({"parse_args", "parse_known_args", "cli", "parse"})
_PARSERS = frozenset({"tyro", "simple_parsing"})  # modules, of which `cli` and `parse` are
_COUNTS = frozenset({"range", "trange", "count", "enumerate"})
_READS = frozenset({"item", "mean"})  # methods that may be called once more
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Changes:
    """What was found in a script.

    Attributes:
        libraries: whose lines become ours.
        by_hand: what is left to the user, with its line.
    """

    libraries: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)


def integrate(source: Source, table: str) -> Changes:
    """Note the edits that make a script's logger lines ours.

    Args:
        source: gets the edits.
        table: for the runs of a script that has no logger.
    """
    changes = Changes()
    if _uses_us(source.tree):
        return changes
    _writers(source, changes)
    _wandb(source, changes)
    _models(source, changes)
    if changes.libraries in ([], ["SummaryWriter"]):
        _run(source, changes, table, prints=not changes.libraries)
    return changes


def _uses_us(tree: ast.Module) -> bool:
    return any(name.partition(".")[0] == "rla_client" for _, name in _imported(tree))


def _imported(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Each import statement with the name of a module that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


# -- SummaryWriter -------------------------------------------------------------------------------


def _writers(source: Source, changes: Changes) -> None:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in WRITERS and not node.level:
            ours = [alias for alias in node.names if alias.name == WRITER]
            if not ours:
                continue
            lines = [OUR_WRITER + (f" as {alias.asname}" if alias.asname else "") for alias in ours]
            rest = [_alias_text(alias) for alias in node.names if alias.name != WRITER]
            kept = [f"from {node.module} import {', '.join(rest)}"] if rest else []
            source.replace(node, source.new_lines(node, *kept, *lines))
            changes.libraries.append(WRITER)
    modules = _modules(source.tree)
    used = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr == WRITER and _dotted(node.value) in modules
    ]
    for module in {modules[_dotted(node.value)] for node in used}:
        if not source.insert_after(module, OUR_WRITER):
            changes.by_hand.append(f"line {module.lineno}: {OUR_WRITER}")
    for node in used:
        source.replace(node, WRITER)
    if used:
        changes.libraries.append(WRITER)
    changes.libraries[:] = dict.fromkeys(changes.libraries)


def _modules(tree: ast.Module) -> dict[str, ast.Import | ast.ImportFrom]:
    """Names by which the script has a module with a SummaryWriter, with the statement that imports it."""
    found: dict[str, ast.Import | ast.ImportFrom] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: node for alias in node.names if alias.name in WRITERS}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in WRITERS:
                    found[alias.asname or alias.name] = node
    return found


def _alias_text(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# -- wandb ---------------------------------------------------------------------------------------


def _wandb(source: Source, changes: Changes) -> None:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import) and any(alias.name == "wandb" for alias in node.names):
            lines = [
                f"import {OUR_WANDB} as {alias.asname or 'wandb'}"
                if alias.name == "wandb"
                else f"import {_alias_text(alias)}"
                for alias in node.names
            ]
            source.replace(node, source.new_lines(node, *lines))
            changes.libraries.append("wandb")
        elif isinstance(node, ast.ImportFrom) and node.module == "wandb" and not node.level:
            names = ", ".join(map(_alias_text, node.names))
            source.replace(node, f"from {OUR_WANDB} import {names}")
            changes.libraries.append("wandb")
    changes.by_hand += [
        f"line {node.lineno}: {name} is wandb's own, and has no counterpart here"
        for node, name in _imported(source.tree)
        if name.startswith("wandb.")
    ]
    changes.libraries[:] = dict.fromkeys(changes.libraries)


# -- stable-baselines3 ---------------------------------------------------------------------------


def _models(source: Source, changes: Changes) -> None:
    imports = [node for node, name in _imported(source.tree) if name.partition(".")[0] in SB3]
    learns = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "learn"
    ]
    if not imports or not learns:
        return
    given = [_with_callback(source, node, changes) for node in learns]
    if not any(given):
        return
    changes.libraries.append("stable-baselines3")
    if not any(source.insert_after(node, OUR_CALLBACK) for node in imports if node.col_offset == 0):
        source.insert_at_top(OUR_CALLBACK)


def _with_callback(source: Source, call: ast.Call, changes: Changes) -> bool:
    """Give a call of `learn` our callback beside its own; False where what it has is not to be seen."""
    given = next((word.value for word in call.keywords if word.arg == "callback"), None)
    if given is None and len(call.args) > 1:
        given = call.args[1]
    starred = any(word.arg is None for word in call.keywords) or any(
        isinstance(one, ast.Starred) for one in call.args
    )
    if given is None and starred:
        changes.by_hand.append(f"line {call.lineno}: callback={CALLBACK}")
        return False
    if given is None:
        source.add_argument(call, f"callback={CALLBACK}")
        return True
    if _join(source, given):
        return True
    changes.by_hand.append(f"line {call.lineno}: {CALLBACK} beside {source.text_of(given)}")
    return False


def _join(source: Source, given: ast.expr) -> bool:
    """Put our callback beside a script's own; False where it cannot be seen what that is."""
    if isinstance(given, ast.List) and given.elts:
        source.add_behind(given.elts[-1], f", {CALLBACK}")
        return True
    if isinstance(given, ast.Constant) and given.value is None:
        source.replace(given, CALLBACK)
        return True
    kinds = _kinds(source.tree, given)
    if kinds not in ({"list"}, {"call"}):
        return False
    source.replace(given, f"[{'*' * (kinds == {'list'})}{source.text_of(given)}, {CALLBACK}]")
    return True


def _kinds(tree: ast.Module, value: ast.expr) -> set[str]:
    """Of what kind an expression is: `list`, `call` (one object), `other`; of a name, all it is set to."""
    if isinstance(value, ast.List | ast.ListComp):
        return {"list"}
    if isinstance(value, ast.Call):
        return {"call"}
    if not isinstance(value, ast.Name):
        return {"other"}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(_dotted(target) == value.id for target in node.targets):
            found |= {"other"} if isinstance(node.value, ast.Name) else _kinds(tree, node.value)
        elif isinstance(node, ast.arg) and node.arg == value.id:
            found.add("other")
    return found or {"other"}


# -- a run of the script's own -------------------------------------------------------------------


def _run(source: Source, changes: Changes, table: str, *, prints: bool) -> None:
    """Open a run behind the line that parses the arguments; log what is printed in loops."""
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
    """The first statement that has the script's arguments, and the name that they get."""
    makers: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, _Function):
            continue
        names = {name for node in ast.walk(function) if (name := _assigned(node, set())) is not None}
        for node in ast.walk(function):
            value = node.value if isinstance(node, ast.Return) else None
            if value is not None and (_dotted(value) in names or _parses(value, set())):
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
    """The name that a statement gives what a parser returns."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        target: ast.expr = node.target
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
    else:
        return None
    if node.value is None or not _parses(node.value, makers):
        return None
    if isinstance(target, ast.Tuple) and target.elts:  # of parse_known_args
        target = target.elts[0]
    return _dotted(target) or None


def _parses(value: ast.expr, makers: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id in makers
    if not isinstance(value.func, ast.Attribute) or value.func.attr not in _PARSES:
        return False
    return value.func.attr.startswith("parse_") or _dotted(value.func.value) in _PARSERS


def _printed(tree: ast.Module) -> list[tuple[ast.stmt, list[ast.expr], str]]:
    """Statements in loops that print numbers, with these and the name of the loop's counter."""
    found: list[tuple[ast.stmt, list[ast.expr], str]] = []
    logged: dict[int, set[str]] = {}  # in a block already

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
        _dotted(node.func).rpartition(".")[2] for node in ast.walk(loop.iter) if isinstance(node, ast.Call)
    }
    if not calls & _COUNTS:
        return ""
    target = loop.target
    if isinstance(target, ast.Tuple) and target.elts and "enumerate" in calls:
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else ""


def _values(call: ast.Call, counters: tuple[str, ...]) -> list[ast.expr]:
    """What a call of `print` formats, and may be read once more without doing anything."""
    if _dotted(call.func) != "print":
        return []
    parts: list[ast.expr] = []
    for argument in call.args:
        if isinstance(argument, ast.JoinedStr):
            parts += [one.value for one in argument.values if isinstance(one, ast.FormattedValue)]
        elif isinstance(argument, ast.Call) and _is_format(argument):
            parts += argument.args
        elif isinstance(argument, ast.BinOp) and isinstance(argument.left, ast.Constant):  # "… %f" % loss
            right = argument.right
            parts += right.elts if isinstance(right, ast.Tuple) else [right]
        else:
            parts.append(argument)
    named = {_name(part): part for part in parts if _is_plain(part) and _name(part) not in counters}
    return [part for name, part in named.items() if name]


def _is_format(call: ast.Call) -> bool:
    """Whether a call is `"…".format(…)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "format"
        and isinstance(call.func.value, ast.Constant)
    )


def _is_plain(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        method = value.func
        reads = isinstance(method, ast.Attribute) and method.attr in _READS
        return reads and not value.args and not value.keywords and _is_plain(method.value)  # type: ignore[attr-defined]
    if isinstance(value, ast.Attribute):
        return _is_plain(value.value)
    return isinstance(value, ast.Name) and not keyword.iskeyword(value.id)


def _name(value: ast.expr) -> str:
    """The name under which a value is logged: `group/name` of an attribute."""
    if isinstance(value, ast.Call):
        return _name(value.func.value) if isinstance(value.func, ast.Attribute) else ""
    return _dotted(value).removeprefix("self.").replace(".", "/")
