"""The sinks: each output that a stream may have, and its encoder. A new sink is a line here.

What it is called and what its file is called stand in `rla_client.contract.layout` (SINKS, OUTPUT_NAMES), as
clients choose by these names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from rla_agent.outputs.csv_table import CsvEncoder
from rla_agent.outputs.encoders import Encoder, JsonEncoder, TextEncoder, line_ends
from rla_agent.outputs.tensorboard import EventEncoder
from rla_client.contract.layout import OUTPUT_NAMES
from rla_client.contract.opening import Opening
from rla_client.contract.protocol import TextTarget

Ends: TypeAlias = "Callable[[bytes], list[int]]"


class Format(NamedTuple):
    """How one output is written.

    Attributes:
        ends: its encoder's `ends`.
        new: an encoder for a fresh file.
    """

    ends: Ends
    new: Callable[[Opening], Encoder]


FORMATS: Final = {
    "csv": Format(CsvEncoder.ends, lambda _: CsvEncoder()),
    "json": Format(JsonEncoder.ends, lambda _: JsonEncoder()),
    "log": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.LOG, tables=True)),
    "tensorboard": Format(EventEncoder.ends, lambda opening: EventEncoder(opening.opened)),
    "warn": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.WARN, tables=False)),
    "backup": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.BACKUP, tables=False)),
    "console": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.CONSOLE, tables=False)),
}
_BY_ENDING: Final = {os.path.splitext(OUTPUT_NAMES[name])[1]: FORMATS[name].ends for name in OUTPUT_NAMES}


def ends_of(name: bytes) -> Ends:
    """How the records of a growing file end, by its name."""
    if b"tfevents" in name:
        return EventEncoder.ends
    return _BY_ENDING.get(os.path.splitext(os.fsdecode(name))[1], line_ends)
