"""Full texts of some samples."""

from __future__ import annotations

import json
from typing import Any

from rla_client.web.page_json import sent
from rla_client.web.run_registry import Site
from rla_client.web.sample_indexes import cached_index, refreshed
from rla_client.web.sample_list import WHOLE_CHARS, matching_rows, row_numbers

WHOLE_ROWS = 64  # samples of one answer


def whole(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Samples with all their texts: those of `rows`, or all of a `group` at a `step`."""
    kept = cached_index(site, asked)
    with kept.lock:
        index = refreshed(kept)
        rows = matching_rows(kept, asked) if asked.get("rows") is None else row_numbers(asked["rows"])
        rows = [row for row in rows if 0 <= row < len(index)]
        found: list[Any] = []
        size = 0
        for row, line in index.texts(rows[:WHOLE_ROWS]):
            size += len(line)
            if found and size > WHOLE_CHARS:
                break
            found.append([row, sent(json.loads(line))])
    return {"samples": found, "more": len(rows) - len(found)}
