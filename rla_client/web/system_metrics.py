"""Samples of a run's system metrics."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Any, BinaryIO

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.web.item_files import item_file
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import Site

SYSTEM_FILE = "system.csv"
SAMPLES = 1200  # of a long system.csv, evenly over the file
WHOLE_BYTES = 256 << 10  # a shorter file is read completely
MAX_ROW_BYTES = 2048


def system(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The resources that a run's processes used: column → numbers; of a long file, evenly spread rows.

    `columns` is empty where nothing was sampled (`sample_interval_s`).
    """
    try:
        with item_file(site, asked_run(site, asked), LOG, SYSTEM_FILE) as file:
            head, rows = _sampled(file)
    except (FileNotFoundError, DatabaseError):
        return {"columns": {}}
    wanted = [[_float(cell) for cell in row.split(",")] for row in rows]
    wanted = [row for row in wanted if len(row) == len(head) and row[0] is not None]
    columns = {name: [row[place] for row in wanted] for place, name in enumerate(head)}
    return {"columns": {name: cells for name, cells in columns.items() if any(c is not None for c in cells)}}


def _sampled(file: BinaryIO) -> tuple[list[str], list[str]]:
    """The names of the header, and complete lines."""
    size = os.fstat(file.fileno()).st_size
    line = file.readline(MAX_ROW_BYTES).decode("utf-8", "replace")
    begin = file.tell()
    if size <= WHOLE_BYTES:
        lines = file.read(WHOLE_BYTES).decode("utf-8", "replace").split("\n")[:-1]
    else:
        lines = []
        for place in range(SAMPLES):
            file.seek(begin + (size - begin - MAX_ROW_BYTES) * place // (SAMPLES - 1))
            whole = file.read(MAX_ROW_BYTES).split(b"\n")
            if len(whole) > 2:  # noqa: PLR2004 - end of one line, a complete one, start of a third
                lines.append(whole[-2 if place == SAMPLES - 1 else 1].decode("utf-8", "replace"))
        lines = list(dict.fromkeys(lines))
    return line.strip().split(","), lines


def _float(cell: str) -> float | None:
    with suppress(ValueError):
        found = float(cell)
        return found if math.isfinite(found) else None
    return None
