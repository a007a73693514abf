"""Reading of a script's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def imported_modules(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Each import statement with the name of a module that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def alias_text(alias: ast.alias) -> str:
    """A name that an import statement takes, as it is written there."""
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` of an expression that is one; else empty, or with an empty beginning."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
