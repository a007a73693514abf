"""Write docs/modules.md: every module with the first line of its docstring. `make man` runs it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "modules.md"
HEAD = """# Index of modules

Every module with its one job, by folder: the page to search when you look for a thing by its noun. `make man`
writes it. How the folders hang together is in [architecture](architecture.md).
"""


def first_line(path: Path) -> str:
    """Of a module's docstring, without its full stop."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.split("\n", 1)[0].rstrip(".")


def index() -> str:
    """The page."""
    parts = [HEAD]
    for top in ("rla_client", "rla_agent"):
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            init = folder / "__init__.py"
            about = first_line(init) if init.exists() else "Put on the path of programs, no package of ours"
            rows = [f"| `{path.name}` | {first_line(path)} |" for path in modules]
            table = ["", "| module | what it is |", "|---|---|", *rows] if rows else []
            parts.append("\n".join([f"## {folder.relative_to(ROOT)}", "", f"{about}.", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(index(), encoding="utf-8")
