"""A segment decoded and encoded by every sink, for comparison with golden files."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import Row
from rla_agent.outputs.csv_encoder import CsvEncoder, new_columns, row_keys, to_csv, widened
from rla_agent.outputs.json_encoder import JsonEncoder
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.outputs.text_encoder import TextEncoder
from rla_client.contract.spool.protocol import TextTarget


def decoded(data: bytes) -> list[Any]:
    """Each record's type, end and fields, as JSON can hold them."""
    batch = parse(data, 1, 0, final=True)
    assert batch.damaged == 0
    return [[type(one.content).__name__, one.end, repr(plain(one.content))] for one in batch.records]


def plain(content: Any) -> Any:
    """A record's content as a dict."""
    return asdict(content) if is_dataclass(content) else content._asdict()  # type: ignore[arg-type]


def outputs_of(data: bytes) -> dict[str, bytes]:
    """What each sink writes for a segment."""
    outputs = {}
    for name, encoder in (
        ("events", EventEncoder(1763717401.5)),
        ("jsonl", JsonEncoder()),
        ("log.txt", TextEncoder(TextTarget.LOG, tables=True)),
        ("warn.txt", TextEncoder(TextTarget.WARN, tables=False)),
    ):
        records = parse(data, 1, 0, final=True).records
        outputs[name] = encoder.head() + encoder.encode(records)[0]
    outputs["csv"] = csv_of(data)
    return outputs


def csv_of(data: bytes) -> bytes:
    """The CSV, widened as the records demand."""
    records = parse(data, 1, 0, final=True).records
    encoder = CsvEncoder()
    content = b""
    while records:
        piece, used = encoder.encode(records)
        content += piece
        records = records[used:]
        if records:
            row = records[0].content
            assert isinstance(row, Row)
            added = new_columns(encoder.columns, records[:1])
            assert set(added) <= row_keys(row)
            encoder.set_columns([*encoder.columns, *added])
            content = b"".join(widened([content], encoder.columns, len(added))) or to_csv([encoder.columns])
    return content
