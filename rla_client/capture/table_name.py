"""Table of a captured run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rla_client.contract.safe_names import component_problem

GENERAL_NAMES = frozenset({"main", "__main__", "train", "training", "run", "script"})


def table_name(*wanted: str) -> str:
    """The first of these names that can be one, made fit; else that of the script.

    Args:
        *wanted: what the user, a project, an environment say; empty ones say nothing.
    """
    for name in (*wanted, *script_names(), "captured"):
        fit = name.replace(os.sep, "-").strip()
        if fit and not component_problem(fit):
            return fit
    return "captured"


def script_names() -> tuple[str, ...]:
    """Names of the program: its file's, or that of its folder where the file is called `main` or the like."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        parts = [part for part in str(spec.name).split(".") if part != "__main__"]
        path = Path(*parts) if parts else Path()
        places = [*reversed(path.parts)]
    else:
        file = getattr(main, "__file__", None)
        if file is None:
            return ("notebook" if "ipykernel" in sys.modules else "interactive",)
        path = Path(os.path.abspath(file))
        places = [path.stem, path.parent.name]
    return (*[place for place in places if place.lower() not in GENERAL_NAMES], *places)
