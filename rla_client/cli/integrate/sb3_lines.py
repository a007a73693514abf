"""Rewriting of the calls of stable-baselines3's `learn`."""

from __future__ import annotations

import ast

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.script_syntax import dotted_name, imported_modules
from rla_client.cli.integrate.source_edits import SourceEdits

SB3 = frozenset({"stable_baselines3", "sb3_contrib"})
CALLBACK = "RLACallback()"
OUR_CALLBACK = "from rla_client.integrations.sb3 import RLACallback"


def change_models(source: SourceEdits, changes: ScriptChanges) -> None:
    """Give each call of `learn` our callback."""
    imports = [node for node, name in imported_modules(source.tree) if name.partition(".")[0] in SB3]
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


def _with_callback(source: SourceEdits, call: ast.Call, changes: ScriptChanges) -> bool:
    """Add our callback to a call of `learn`; False, with advice for the user, if its own is unclear."""
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


def _join(source: SourceEdits, given: ast.expr) -> bool:
    """Combine our callback with the script's own; False if that one is unclear."""
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
    """Kinds of an expression: `list`, `call` (one object), `other`; for a name those of its assignments."""
    if isinstance(value, ast.List | ast.ListComp):
        return {"list"}
    if isinstance(value, ast.Call):
        return {"call"}
    if not isinstance(value, ast.Name):
        return {"other"}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(dotted_name(target) == value.id for target in node.targets):
            found |= {"other"} if isinstance(node.value, ast.Name) else _kinds(tree, node.value)
        elif isinstance(node, ast.arg) and node.arg == value.id:
            found.add("other")
    return found or {"other"}
