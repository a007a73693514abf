"""Values cut to a length that a page can show."""

from __future__ import annotations

import json

from rla_client.web.page_json import sent

MAX_PARAMETERS = 20_000  # names of one answer
MAX_VALUE = 4000  # characters of one value


def short_value(value: object) -> object:
    """A value for JSON: texts, and lists or mappings as text, cut to `MAX_VALUE` characters."""
    found = sent(value)
    if isinstance(found, str):
        return found[:MAX_VALUE]
    if isinstance(found, list | dict):
        return json.dumps(found, ensure_ascii=False)[:MAX_VALUE]
    return found
