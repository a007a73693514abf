"""History of a run.

A resumed run keeps the hyper-parameters that it began with; each change is a file of its own
(`rla_client.run.state.archive`). The traceback of what ended a run is the last one of its warnings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.layout import OUTPUT_NAMES
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.json_files import read_json

FAILED = "failed"
MAX_TRACEBACK_LINES = 15  # the end says what and where; `rla tail --file warn` has all
END_BYTES = 80 << 10  # of the warnings: the longest traceback that is kept, and what came after


def resumed_with(log_folder: str) -> list[dict[str, Any]]:
    """What each `parameter.resumed-N.json` says, in order: `file`, `time_step`, `time`, `changed`."""
    from rla_client.run.parameters.parameter_changes import change_files

    found = []
    for path in change_files(Path(log_folder)):
        try:
            content = parse_json(read_small(path))
        except (OSError, ValueError):
            continue  # `rla fsck` is for broken files
        if isinstance(content, dict) and isinstance(content.get("changed"), dict):
            said = {name: content.get(name) for name in ("time_step", "time", "changed")}
            found.append({"file": path.name, **said})
    return found


def changes_text(resumes: list[dict[str, Any]]) -> dict[str, str]:
    """Lines of name and value for people: the name of a file, and `lr 0.1 → 0.2, …`."""
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


def traceback_end(log_folder: str, state: str | None) -> str:
    """The last lines of the traceback that a failed run ended with; empty where there is none."""
    if state != FAILED:
        return ""
    from rla_client.run.failure import TRACEBACK_HEAD

    try:
        reason = str((read_json(f"{log_folder}/{RUN_FILE}") or {}).get("reason") or "")
        with open_plain(f"{log_folder}/{OUTPUT_NAMES['warn']}") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
            text = file.read(END_BYTES).decode("utf-8", "replace")
    except (OSError, BrokenFileError):
        return ""
    place = text.rfind(TRACEBACK_HEAD)
    if place < 0 or not reason or reason.partition(":")[0] not in text[place:]:
        return ""  # one of something else, which the run went on after
    return "\n".join(text[place:].rstrip("\n").split("\n")[-MAX_TRACEBACK_LINES:])
