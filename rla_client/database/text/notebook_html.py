"""HTML of a database or a run, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.text.duration_text import duration_text
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean
from rla_client.database.text.tag_text import tags_text

if TYPE_CHECKING:
    from rla_client.database.records.record import Record


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def _cell(value: object) -> str:
    return _escaped(clean(value))


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _pairs(title: str, pairs: Mapping[str, object]) -> str:
    return f"<b>{_cell(title)}</b>{_table(['name', 'value'], list(pairs.items()))}" if pairs else ""


def database_html(data_root: Path, records: Sequence[Record], now: float) -> str:
    """A table of runs, given oldest first."""
    rows = [
        [
            r.date,
            r.table,
            r.shown_state(now),
            plain(r.time_step),
            duration_text(r.duration_s),
            tags_text(r.tags),
        ]
        for r in reversed(records)
    ]
    title = f"<b>{_escaped(str(data_root))}</b>, newest {len(records)} runs"
    return title + _table(["run", "table", "state", "time-step", "took", "tags"], rows)


def run_html(record: Record, now: float) -> str:
    """Tables of state, hyper-parameters and last values of one run."""
    facts = {
        "state": record.shown_state(now),
        "time-step": plain(record.time_step),
        "took": duration_text(record.duration_s),
    }
    facts |= {"name": record.display_name, "tags": tags_text(record.tags), "note": record.note}
    title = f"<b>{_escaped(f'{record.table}/{record.index}')}</b>"
    return (
        title
        + _table(list(facts), [list(facts.values())])
        + _pairs("hyper-parameters", record.hyper.flat())
        + _pairs("last values", dict(record.metrics))
    )
