"""CSV files of logged tables."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgpack

from rla_client.contract.job.media_job import JOB_TABLE, MAX_BLOB_BYTES
from rla_client.media import job_sender, render
from rla_client.media.recording_place import find_place
from rla_client.stream.values import to_plain


def send_table(
    name: str,
    columns: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    plain: Callable[[Any], Any],
    where: Mapping[str, Any],
) -> None:
    """Write a table as CSV, by the agent if one runs.

    Args:
        name: below the results folder, ending in `.csv`.
        columns: names.
        rows: cells, plain data or objects that `plain` converts.
        plain: called for objects that msgpack does not support.
        where: other arguments of `find_place`.

    Raises:
        ArgumentError: the name is invalid.
        NotConfiguredError: no run is open and no folder is given.
    """
    place = find_place(name, frozenset({"csv"}), **where)
    if place.stays:
        return
    content = _packed(columns, rows, plain)
    travels = len(content) <= MAX_BLOB_BYTES and _finds_msgpack() and job_sender.can_send(place)
    if not (travels and job_sender.send_blob(place, JOB_TABLE, (content,), {})):
        job_sender.make_here(place, JOB_TABLE, lambda file: render.encode_table(io.BytesIO(content), file))


@cache
def _finds_msgpack() -> bool:
    """Whether the render process, which has no PYTHONPATH, finds msgpack, in which tables are sent."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(msgpack.__file__)))
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return folder not in {os.path.abspath(path) for path in listed if path}


def table_csv(columns: Sequence[Any], rows: Sequence[Sequence[Any]], plain: Callable[[Any], Any]) -> bytes:
    """The CSV of a table; see `send_table`."""
    content = io.BytesIO()
    render.encode_table(io.BytesIO(_packed(columns, rows, plain)), content)
    return content.getvalue()


def _packed(columns: Sequence[Any], rows: Sequence[Sequence[Any]], plain: Callable[[Any], Any]) -> bytes:
    def pack(table: object) -> bytes:
        found: bytes = msgpack.packb(table, default=plain, unicode_errors="surrogatepass")
        return found

    names = [str(name) for name in columns]
    try:
        return pack([names, rows])
    except (OverflowError, ValueError):  # a large integer, or deeply nested data
        return pack([names, [[_cell(cell, plain) for cell in row] for row in rows]])


def _cell(cell: Any, plain: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any value
    try:
        msgpack.packb(cell, default=plain, unicode_errors="surrogatepass")
    except (OverflowError, ValueError):
        return str(cell) if isinstance(cell, int) else _nested(cell)
    return cell


def _nested(cell: Any) -> str:  # noqa: ANN401 - any value
    """A cell that msgpack does not support, as JSON like other nested cells, or else as text."""
    try:
        return json.dumps(cell, default=to_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a key that is not a text; a cycle
        return str(to_plain(cell))
