"""Curves of a panel as a page reads them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from rla_client.web import curves
from rla_client.web.run_registry import Site


def decoded(body: bytes) -> tuple[dict[str, Any], np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    """As api.js and panels.js read an answer."""
    (length,) = struct.unpack("<I", body[:4])
    head = json.loads(body[8 : 8 + length])
    start = 8 + -(-length // 8) * 8
    xs = np.frombuffer(body, "<f8", head["points"], start)
    kind, size = ("<f8", 8) if head["wide"] else ("<f4", 4)
    begin = start + 8 * head["points"]
    series = [
        np.frombuffer(body, kind, head["points"], begin + place * size * head["points"])
        for place in range(head["series"])
    ]
    return head, xs, series


def asked(site: Site, **what: Any) -> tuple[dict[str, Any], np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    site.look_now()
    runs = [entry.number for entry in site.entries()]
    answer = curves.curves(site, {"runs": runs, "metric": "return", **what})
    return decoded(bytes(answer.body))


def write_rows(root: Path, index: str, text: str, table: str = "task") -> None:
    (root / "log" / table / index / "progress.csv").write_text(text)


def table_of(xs: Any, ys: Any) -> str:
    return "return,time-step,timestamp\n" + "".join(
        f"{y!r},{x!r},{1000.0 + 2 * x!r}\n" for x, y in zip(map(float, xs), map(float, ys), strict=True)
    )
