"""Checkpoint files with a stamp, made without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rla_client.contract.checkpoint.stamp import STAMP_RECORD, Stamp
from rla_client.contract.checkpoint.torch_zip import TORCH_FORMAT, TorchZip


def stamped(
    folder: Path,
    step: int,
    order: int,
    *,
    name: str = "checkpoint",
    run: str = "r",
    sizes: Sequence[int] = (4,),
) -> Path:
    """`<name>_<step>.pt` in a folder, as saved at `order`; its tensors are zeros of so many bytes."""
    path = folder / f"{name}_{step}.pt"
    stamp = Stamp(f"{order:016x}", order, run, name, step, {"loss": 0.5}).encode()
    with open(path, "wb") as file, TorchZip(file) as zipped:
        zipped.add("data.pkl", 3, [b"\x80\x02}"])
        for key, size in enumerate(sizes):
            zipped.add(f"data/{key}", size, [b"0" * size])
        zipped.add("version", len(TORCH_FORMAT), [TORCH_FORMAT])
        zipped.add(STAMP_RECORD, len(stamp), [stamp])
    return path
