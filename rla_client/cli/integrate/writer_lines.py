"""Rewriting of the lines that import a SummaryWriter."""

from __future__ import annotations

import ast

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.script_syntax import alias_text, dotted_name
from rla_client.cli.integrate.source_edits import SourceEdits

WRITERS = frozenset({
    "torch.utils.tensorboard", "torch.utils.tensorboard.writer", "tensorboardX", "tensorboardX.writer",
})  # fmt: skip
WRITER = "SummaryWriter"
OUR_WRITER = "from rla_client.integrations.tensorboard import SummaryWriter"


def change_writers(source: SourceEdits, changes: ScriptChanges) -> None:
    """Replace imports of other SummaryWriters by ours."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in WRITERS and not node.level:
            ours = [alias for alias in node.names if alias.name == WRITER]
            if not ours:
                continue
            lines = [OUR_WRITER + (f" as {alias.asname}" if alias.asname else "") for alias in ours]
            rest = [alias_text(alias) for alias in node.names if alias.name != WRITER]
            kept = [f"from {node.module} import {', '.join(rest)}"] if rest else []
            source.replace(node, source.new_lines(node, *kept, *lines))
            changes.libraries.append(WRITER)
    modules = _modules(source.tree)
    used = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr == WRITER and dotted_name(node.value) in modules
    ]
    for module in {modules[dotted_name(node.value)] for node in used}:
        if not source.insert_after(module, OUR_WRITER):
            changes.by_hand.append(f"line {module.lineno}: {OUR_WRITER}")
    for node in used:
        source.replace(node, WRITER)
    if used:
        changes.libraries.append(WRITER)
    changes.libraries[:] = dict.fromkeys(changes.libraries)


def _modules(tree: ast.Module) -> dict[str, ast.Import | ast.ImportFrom]:
    """Name of an imported module with a SummaryWriter → statement that imports it."""
    found: dict[str, ast.Import | ast.ImportFrom] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: node for alias in node.names if alias.name in WRITERS}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in WRITERS:
                    found[alias.asname or alias.name] = node
    return found
