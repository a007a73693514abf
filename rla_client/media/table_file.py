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
    """Have a table written as CSV, by the agent where there is one.

    Args:
        name: below the results folder, ending in `.csv`.
        columns: names.
        rows: cells; each plain data or what `plain` makes it.
        plain: called for what msgpack has no form for.
        where: other arguments of `find_place`.

    Raises:
        ArgumentError: the name cannot be a file's.
        NotConfiguredError: there is no folder for it.
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
    """Whether the agent's process, which has no PYTHONPATH, finds the library that tables travel in."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(msgpack.__file__)))
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return folder not in {os.path.abspath(path) for path in listed if path}


def table_csv(columns: Sequence[Any], rows: Sequence[Sequence[Any]], plain: Callable[[Any], Any]) -> bytes:
    """Content of a table's file; see `send_table`."""
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
    except (OverflowError, ValueError):  # a long integer, or something too deep
        return pack([names, [[_cell(cell, plain) for cell in row] for row in rows]])


def _cell(cell: Any, plain: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any value
    try:
        msgpack.packb(cell, default=plain, unicode_errors="surrogatepass")
    except (OverflowError, ValueError):
        return str(cell) if isinstance(cell, int) else _nested(cell)
    return cell


def _nested(cell: Any) -> str:  # noqa: ANN401 - any value
    """What msgpack has no form for, as the agent writes nested cells: JSON, else text."""
    try:
        return json.dumps(cell, default=to_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a key that is no text; something that holds itself
        return str(to_plain(cell))
