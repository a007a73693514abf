"""Samples in a run's item, written as the agent writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rla_agent.model.records import Record, Samples
from rla_agent.outputs.samples_encoder import SamplesEncoder
from rla_client.contract.layout import SAMPLES, samples_file

Chunk = tuple[float, Sequence[dict[str, Any]]]  # time-step and rows


def write_samples(
    root: Path, table: str, index: str, chunks: Sequence[Chunk], *, label: str = "", left_out: int = 0
) -> Path:
    """Append chunks to the samples of a run; returns the file."""
    path = root / SAMPLES / table / index / samples_file(label)
    path.parent.mkdir(parents=True, exist_ok=True)
    encoder = SamplesEncoder(label)
    records = [
        Record(number, Samples("train", step, 1000.0 + step, left_out, list(rows)))
        for number, (step, rows) in enumerate(chunks)
    ]
    with path.open("ab") as file:
        file.write(encoder.encode(records)[0])
    return path
