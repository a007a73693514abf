"""Which outputs a stream writes, and under which names."""

from __future__ import annotations

import os
from typing import Any

from rla_agent.outputs.csv_table import CsvEncoder
from rla_agent.outputs.encoders import Encoder, JsonEncoder, TextEncoder
from rla_agent.outputs.output import Output
from rla_agent.outputs.tensorboard import EventEncoder
from rla_client.contract.opening import Opening
from rla_client.contract.protocol import TextTarget


def make_outputs(opening: Opening, stream: str) -> list[Output]:
    """The outputs that a stream asks for; warn and backup texts always exist."""
    log = opening.folders["log"]
    makers: dict[str, tuple[str, str, Any]] = {}
    if "csv" in opening.sinks:
        makers["csv"] = (log, opening.output_path("csv"), CsvEncoder)
    if "json" in opening.sinks:
        makers["json"] = (log, opening.output_path("json"), JsonEncoder)
    if "log" in opening.sinks:
        makers["log"] = (log, opening.output_path("log"), _text(TextTarget.LOG, tables=True))
    if "tensorboard" in opening.sinks:
        folder = os.path.normpath(os.path.join(log, "tb", opening.label or "events"))
        opened = opening.opened
        makers["tensorboard"] = (folder, event_file_name(opening, stream), lambda: EventEncoder(opened))
    makers["warn"] = (log, opening.output_path("warn"), _text(TextTarget.WARN, tables=False))
    makers["backup"] = (
        log,
        opening.output_path("backup"),
        _text(TextTarget.BACKUP, tables=False),
    )
    return [
        Output(name, opening.root, folder, file_name, maker, maker(), item=log)
        for name, (folder, file_name, maker) in makers.items()
    ]


def _text(target: int, *, tables: bool) -> Any:  # noqa: ANN401 - a factory
    def make() -> Encoder:
        return TextEncoder(target, tables=tables)

    return make


def event_file_name(opening: Opening, stream: str) -> str:
    """Unique name of a stream's event file, the same after any restart."""
    host = "".join(c if c.isalnum() or c in "-." else "_" for c in opening.host)[:64]
    return f"events.out.tfevents.{int(opening.opened)}.{host}.{opening.pid}.{stream[-8:]}"
