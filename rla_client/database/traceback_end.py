"""End of the traceback of a failed run."""

from __future__ import annotations

import os

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.layout import OUTPUT_NAMES
from rla_client.contract.run_file import RUN_FILE
from rla_client.database.json_files import read_json

FAILED = "failed"
MAX_TRACEBACK_LINES = 15  # the end has the error and its place; `rla tail --file warn` has all
END_BYTES = 80 << 10  # of warn.txt: the longest traceback that is stored, and some text after it


def traceback_end(log_folder: str, state: str | None) -> str:
    """Last lines of the traceback that ended a failed run; empty if there is none."""
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
        return ""  # the run survived the error of this traceback
    return "\n".join(text[place:].rstrip("\n").split("\n")[-MAX_TRACEBACK_LINES:])
