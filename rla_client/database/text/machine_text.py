"""JSON or CSV output for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from rla_client.contract.text.csv_lines import rows_text


def json_text(value: object) -> str:
    """JSON of plain data; other values, NaN and infinities become text."""
    try:
        return json.dumps(value, default=str, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=str, indent=1, ensure_ascii=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """CSV with a header, without the last newline."""
    return rows_text([names, *rows]).removesuffix("\n")
