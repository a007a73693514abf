"""Table of a captured run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rla_client.contract.safe_names import component_problem

GENERAL_NAMES = frozenset({"main", "__main__", "train", "training", "run", "script"})


def table_name(*wanted: str) -> str:
    """The first valid name, with slashes replaced; by default a name of the script.

    Args:
        *wanted: names given by the user, a project or an environment, in this order; empty ones are skipped.
    """
    for name in (*wanted, *script_names(), "captured"):
        fit = name.replace(os.sep, "-").strip()
        if fit and not component_problem(fit):
            return fit
    return "captured"


def script_names() -> tuple[str, ...]:
    """Names of the program, the best first: its file or, for a general name such as `main`, its folder."""
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
