"""Search in the texts of samples."""

from __future__ import annotations

import time
from typing import Any

from rla_client.database.samples.sample_query import containing
from rla_client.web.request_arguments import number
from rla_client.web.run_registry import Site
from rla_client.web.sample_indexes import cached_index, refreshed
from rla_client.web.sample_list import MAX_FOUND, matching_rows

SEARCH_S = 0.4  # longest time of one answer


def search(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The matching rows that contain a text, part by part: `next` is where the next search begins."""
    kept = cached_index(site, asked)
    text = str(asked.get("text") or "")
    begin = max(0, int(number(asked, "begin", 0)))
    until = time.monotonic() + SEARCH_S
    with kept.lock:
        index = refreshed(kept)
        rows = sorted(matching_rows(kept, {**asked, "sort": "", "among": None}))
        left = rows[begin:]
        searched = len(left)

        def within_time(count: int) -> bool:
            nonlocal searched
            if time.monotonic() > until:
                searched = count
                return False
            return True

        found = list(containing(index, left, text, within_time))[:MAX_FOUND]
    following = begin + searched
    return {"rows": found, "next": following if following < len(rows) else None, "of": len(rows)}
