"""Extraction of single values from JSON text.

A filter over 100,000 rows of the catalogue needs one value of each: it is cut out of the JSON text if that
is flat, without making a `Record`.
"""

from __future__ import annotations

import json
from functools import lru_cache

from rla_client.database.filter.filter_language import MISSING
from rla_client.run.parameters.hyper_params import HyperParams

_decode = json.JSONDecoder(object_hook=HyperParams).raw_decode


def parameter_or_metric(hyper: str | None, metrics: str | None, name: str, default: object = None) -> object:
    """Value of a name that is not a field, as `RowView.get` gives it, from the JSON texts of a record."""
    found = value_in(hyper, name)
    if found is MISSING:
        found = value_in(metrics, name, nested=False)
    return default if found is MISSING else found


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return f"{json.dumps(name)}:"


def value_in(text: str | None, name: str, *, nested: bool = True) -> object:
    """Value of a name in JSON text written by `record.to_json`; `MISSING` without one.

    Quotes inside texts are escaped, so whatever looks like a key after a brace or a comma is one.
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
