"""Rewriting of a training script's logging lines.

`SummaryWriter` and wandb are imported from our adapters, and models of stable-baselines3 learn with our
callback. A script without these opens a run after the line that parses its arguments, and logs the numbers
that it prints in loops.
"""

from __future__ import annotations

import ast

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.own_run import open_run
from rla_client.cli.integrate.sb3_lines import change_models
from rla_client.cli.integrate.script_syntax import imported_modules
from rla_client.cli.integrate.source_edits import SourceEdits
from rla_client.cli.integrate.wandb_lines import change_wandb
from rla_client.cli.integrate.writer_lines import WRITER, change_writers


def integrate(source: SourceEdits, table: str) -> ScriptChanges:
    """Add the edits that integrate our logger into a script.

    Args:
        source: the script, which receives the edits.
        table: task table for a script without a logger.
    """
    changes = ScriptChanges()
    if _uses_us(source.tree):
        return changes
    change_writers(source, changes)
    change_wandb(source, changes)
    change_models(source, changes)
    if changes.libraries in ([], [WRITER]):
        open_run(source, changes, table, prints=not changes.libraries)
    return changes


def _uses_us(tree: ast.Module) -> bool:
    return any(name.partition(".")[0] == "rla_client" for _, name in imported_modules(tree))
