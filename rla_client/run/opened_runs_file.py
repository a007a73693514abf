"""List of the runs that a program opened (`RLA_RUN_FILE`).

The starter of this program reads from it which items were opened. The file gets a line for each item that a
process opens or continues, as it is opened:

    {"data_root": "/data/rla", "table": "t", "index": "2026/11/21/…", "run_key": "sweep-3"}

`run_key` is the `run_id`, empty without one. Workers of a run, ranks above 0 and RLA_MODE=disabled open
none. An item that the same process opens again has its line already. A failure is one warning, since training
matters more than the line.
"""

from __future__ import annotations

import json
import os

from rla_client.contract.filesystem.plain_files import append_line
from rla_client.contract.spool.opening import Opening

RUN_FILE_VARIABLE = "RLA_RUN_FILE"
_told: set[tuple[str, int, str, str]] = set()  # lines in RLA_RUN_FILE
_failed: set[str] = set()


def tell_opened(path: str, opening: Opening) -> None:
    """Append the item of `opening` to the file at `path`; a plain folder is none."""
    told = path, os.getpid(), opening.root, opening.title
    if not path or not opening.table or told in _told:
        return
    _told.add(told)
    found = {"data_root": opening.root, "table": opening.table, "index": opening.index}
    line = json.dumps({**found, "run_key": opening.run_key}) + "\n"
    try:
        append_line(path, line.encode())
    except (OSError, ValueError) as error:
        if path not in _failed:
            _failed.add(path)
            import logging  # noqa: PLC0415 - not at import of the package

            logging.getLogger("rla_client").warning(
                "RLA_RUN_FILE cannot be written, so the runs opened here are not listed: %s", error
            )
