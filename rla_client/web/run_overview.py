"""Overview of a run.

The page asks for it again and again while the run lives, so it reads only small files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG, OUTPUT_NAMES, SAMPLES
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.spool.losses import lost_lines
from rla_client.database.clock import clock
from rla_client.database.records.told_fields import shown_in
from rla_client.database.resumed_parameters import resumed_with
from rla_client.database.run_parts import parts_of
from rla_client.database.traceback_end import traceback_end
from rla_client.web.item_files import item_file, item_folder
from rla_client.web.page_json import sent
from rla_client.web.readable_text import readable
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import PageRun, Site, path_of
from rla_client.web.run_relatives import relatives
from rla_client.web.short_values import MAX_PARAMETERS, short_value
from rla_client.web.small_json import small_json

WARNING_BYTES = 16 << 10
WARNINGS = 8
_ABOUT = (
    "run_id", "user", "pid", "reason", "exit_code", "signal", "opened", "reopened", "last_row", "closed",
    "updated", "rows", "lost", "lost_others", "damaged_bytes", "config", "launch", "versions",
    "replicate", "run_key",
)  # fmt: skip


def overview(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """State, parameters, last values, relatives and warnings of a run."""
    entry = asked_run(site, asked)
    record = entry.record
    run = small_json(site, entry, RUN_FILE)
    flat = list(record.hyper.flat().items())
    resumes, traceback = _history(site, entry)
    parts = parts_of(record, clock())
    return {
        "path": path_of(entry),
        "number": entry.number,
        "boot": site.boot,
        "version": site.version,
        "database": str(site.database(entry).data_root),
        "table": record.table,
        "index": record.index,
        "date": record.date,
        "state": entry.state,
        "live": record.is_live(clock()),
        "now": clock(),
        "opened": record.opened,
        "took": sent(record.duration_s),
        "step": sent(record.time_step),
        "host": record.host,
        "tags": list(record.tags),
        "note": record.note,
        "display_name": record.display_name,
        "problems": [*record.problems, *(f"part {line}" for line in parts[1:])],
        "parts": parts[0] if parts else None,
        "likely": record.likely,
        "samples": _may_have_samples(site.database(entry).data_root / SAMPLES / record.table / record.index),
        "parameters": [[name, short_value(value)] for name, value in flat[:MAX_PARAMETERS]],
        "parameter_count": len(flat),
        "tracked": list(record.tracked),
        "resumes": resumes,
        "traceback": readable(traceback.encode("utf-8", "replace")),
        "warnings": _warnings(site, entry),
        "metrics": [[name, sent(value)] for name, value in list(record.metrics.items())[:MAX_PARAMETERS]],
        "about": {name: sent(run[name]) for name in _ABOUT if run.get(name) not in (None, "")},
        "facts": [
            [one.name, one.kind, sent(record.told[one.name])]
            for one in shown_in("page")
            if one.name in record.told
        ],
        "lost": lost_lines(run),
        **relatives(site, entry),
    }


def _may_have_samples(folder: Path) -> bool:
    """Whether a run has samples. A folder that cannot be read counts: the tab reports it."""
    try:
        return folder.is_dir()
    except PermissionError:
        return True


def _history(site: Site, entry: PageRun) -> tuple[list[Any], str]:
    try:
        with item_folder(site, entry, LOG) as folder:
            return sent(resumed_with(str(folder))), traceback_end(str(folder), entry.state)
    except (OSError, DatabaseError):
        return [], ""


def _warnings(site: Site, entry: PageRun) -> list[str]:
    """The last lines of warn.txt, which include the program's alerts."""
    try:
        with item_file(site, entry, LOG, OUTPUT_NAMES["warn"]) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - WARNING_BYTES))
            lines = readable(file.read(WARNING_BYTES)).split("\n")
    except (OSError, DatabaseError):
        return []
    return [line[:500] for line in lines if line.startswith("[")][-WARNINGS:]
