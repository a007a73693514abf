"""Rewriting of the lines that import wandb."""

from __future__ import annotations

import ast

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.script_syntax import alias_text, imported_modules
from rla_client.cli.integrate.source_edits import SourceEdits

OUR_WANDB = "rla_client.integrations.wandb"


def change_wandb(source: SourceEdits, changes: ScriptChanges) -> None:
    """Replace imports of wandb by our module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import) and any(alias.name == "wandb" for alias in node.names):
            lines = [
                f"import {OUR_WANDB} as {alias.asname or 'wandb'}"
                if alias.name == "wandb"
                else f"import {alias_text(alias)}"
                for alias in node.names
            ]
            source.replace(node, source.new_lines(node, *lines))
            changes.libraries.append("wandb")
        elif isinstance(node, ast.ImportFrom) and node.module == "wandb" and not node.level:
            names = ", ".join(map(alias_text, node.names))
            source.replace(node, f"from {OUR_WANDB} import {names}")
            changes.libraries.append("wandb")
    changes.by_hand += [
        f"line {node.lineno}: {name} is wandb's own, and has no counterpart here"
        for node, name in imported_modules(source.tree)
        if name.startswith("wandb.")
    ]
    changes.libraries[:] = dict.fromkeys(changes.libraries)
