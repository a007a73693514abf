"""Formats of the outputs that a stream may have.

A new sink is a line of FORMATS. Its name and its file's name are in `rla_client.contract.layout` (SINKS,
OUTPUT_NAMES), because clients choose by them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.encoder import Encoder
from rla_agent.outputs.file_content import line_ends
from rla_agent.outputs.json_encoder import JsonEncoder
from rla_agent.outputs.output_file import Output
from rla_agent.outputs.samples_encoder import SamplesEncoder
from rla_agent.outputs.tensorboard import EventEncoder, event_file_name
from rla_agent.outputs.text_encoder import TextEncoder
from rla_client.contract.layout import OUTPUT_NAMES, SAMPLES, is_samples_file, samples_file
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import TextTarget

Ends: TypeAlias = "Callable[[bytes], list[int]]"


class Format(NamedTuple):
    """Format of one output: its encoder's `ends`, with a factory of encoders for fresh files."""

    ends: Ends
    new: Callable[[Opening], Encoder]


FORMATS: Final = {
    "csv": Format(CsvEncoder.ends, lambda _: CsvEncoder()),
    "json": Format(JsonEncoder.ends, lambda _: JsonEncoder()),
    "log": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.LOG, tables=True)),
    "tensorboard": Format(EventEncoder.ends, lambda opening: EventEncoder(opening.opened)),
    "warn": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.WARN, tables=False)),
    "backup": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.BACKUP, tables=False)),
    SAMPLES: Format(SamplesEncoder.ends, lambda opening: SamplesEncoder(opening.label)),
    "console": Format(TextEncoder.ends, lambda _: TextEncoder(TextTarget.CONSOLE, tables=False)),
}
_BY_ENDING: Final = {os.path.splitext(OUTPUT_NAMES[name])[1]: FORMATS[name].ends for name in OUTPUT_NAMES}


def ends_of(name: bytes) -> Ends:
    """The function that finds ends of records in a growing file, by the file's name."""
    if b"tfevents" in name:
        return EventEncoder.ends
    if is_samples_file(os.fsdecode(name)):
        return SamplesEncoder.ends
    return _BY_ENDING.get(os.path.splitext(os.fsdecode(name))[1], line_ends)


def make_outputs(opening: Opening, stream: str) -> list[Output]:
    """The outputs that a stream asks for; see `Opening.outputs`."""
    log = opening.folders["log"]
    made = []
    for name, form in FORMATS.items():
        if name in opening.outputs:
            if name == "tensorboard":
                folder = os.path.normpath(os.path.join(log, "tb", opening.label or "events"))
                file_name = event_file_name(opening, stream)
            elif name == SAMPLES:
                folder, file_name = opening.folders.get(SAMPLES, log), samples_file(opening.label)
            else:
                folder, file_name = log, opening.output_path(name)
            new = partial(form.new, opening)
            made.append(
                Output(name, opening.root, folder, file_name, new, new(), item=log, lazy=name == SAMPLES)
            )
    return made
