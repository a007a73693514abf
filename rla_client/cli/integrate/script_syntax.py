"""Helpers to read a script's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def imported_modules(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """(import statement, imported module) pairs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def alias_text(alias: ast.alias) -> str:
    """Source text of a name in an import statement."""
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` for an expression of that form; for others empty, or with an empty first part."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
