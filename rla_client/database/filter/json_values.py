"""Extraction of single values from JSON text.

Of 100,000 rows of the catalogue few are wanted, so a hyper-parameter or a metric is cut out of the JSON text,
where that is flat, and no `Record` is made of the row.
"""

from __future__ import annotations

import json
from functools import lru_cache

from rla_client.database.filter.filter_language import MISSING
from rla_client.run.parameters.hyper_params import HyperParams

_decode = json.JSONDecoder(object_hook=HyperParams).raw_decode


def parameter_or_metric(hyper: str | None, metrics: str | None, name: str, default: object = None) -> object:
    """What `RowView.get` gives for a name that is not a field, out of the JSON texts of a record."""
    found = value_in(hyper, name)
    if found is MISSING:
        found = value_in(metrics, name, nested=False)
    return default if found is MISSING else found


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return f"{json.dumps(name)}:"


def value_in(text: str | None, name: str, *, nested: bool = True) -> object:
    """The value of a name in JSON text of `record.to_json`; `MISSING` without one.

    A quote inside a text is escaped, so what follows a brace or a comma and looks like a key is one.
    """
    if not text:
        return MISSING
    key = _spelled(name)
    at = text.find(key)
    if at < 0 and not (nested and "." in name):
        return MISSING
    if text.find("{", 1) >= 0:
        whole = json.loads(text, object_hook=HyperParams)
        try:
            return whole.dotted(name) if nested else whole[name]
        except KeyError:
            return MISSING
    while at > 0 and text[at - 1] not in "{,":
        at = text.find(key, at + 1)
    return _decode(text, at + len(key))[0] if at > 0 else MISSING
