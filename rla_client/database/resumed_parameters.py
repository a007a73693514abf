"""Changes of hyper-parameters by resumes of a run.

A resumed run keeps its first hyper-parameters; each resume that changes some writes a file of its own
(`rla_client.run.state.archive`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import parse_json


def resumed_with(log_folder: str) -> list[dict[str, Any]]:
    """Content of each `parameter.resumed-N.json`, in order: `file`, `time_step`, `time`, `changed`."""
    from rla_client.run.parameters.parameter_changes import change_files

    found = []
    for path in change_files(Path(log_folder)):
        try:
            content = parse_json(read_small(path))
        except (OSError, ValueError):
            continue  # `rla fsck` reports broken files
        if isinstance(content, dict) and isinstance(content.get("changed"), dict):
            details = {name: content.get(name) for name in ("time_step", "time", "changed")}
            found.append({"file": path.name, **details})
    return found


def changes_text(resumes: list[dict[str, Any]]) -> dict[str, str]:
    """Changes as text by file name, such as `at 7: lr 0.1 → 0.2`."""
    from rla_client.database.text.numbers import plain

    lines = {}
    for one in resumes:
        changes = [
            f"{name} {' → '.join(str(plain(value)) for value in values)}"
            for name, values in one["changed"].items()
            if isinstance(values, list)
        ]
        step = one["time_step"]
        lines[one["file"]] = ("" if step is None else f"at {plain(step)}: ") + ", ".join(changes)
    return lines
