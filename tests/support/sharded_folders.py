"""Saves in the making, written without torch: their shards hold the number of the save again and again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    OWN_FOLDER,
    STAGED_METADATA,
    parts_name,
    receipt_name,
    save_token,
    shard_name,
)
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.records import KeptFile, Receipt, SaveIdentity

RUN = "ab" * 16


def identity(
    step: int = 1, *, epoch: int = 1, attempt: int = 0, world: int = 2, layout: str = "L"
) -> SaveIdentity:
    token = save_token(RUN, epoch, "checkpoint", step, attempt)
    return SaveIdentity(RUN, epoch, token, "checkpoint", step, world, layout)


def parts_path(folder: Path, save: SaveIdentity) -> Path:
    return folder / PARTS_FOLDER / parts_name(save.name, save.step, save.token)


def content(save: SaveIdentity, order: int) -> bytes:
    return f"{save.token} {order}\n".encode() * 250  # large enough to be pruned


def write_part(folder: Path, save: SaveIdentity, rank: int, order: int = 1, **told: object) -> None:
    """Shard and receipt of a rank; `told`: other fields of the receipt."""
    here = parts_path(folder, save)
    (here / OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    data = content(save, order)
    (here / shard_name(rank)).write_bytes(data)
    kept = KeptFile(shard_name(rank), len(data), hashlib.sha256(data).hexdigest())
    metadata = None
    if rank == 0:
        (here / STAGED_METADATA).write_bytes(data)
        metadata = KeptFile(METADATA, len(data), kept.sha256)
    fields: dict[str, object] = {
        "save": save, "rank": rank, "host": "here", "order": order, "files": (kept,), "metadata": metadata,
        **told,
    }  # fmt: skip
    (here / receipt_name(rank)).write_bytes(Receipt(**fields).encode())  # type: ignore[arg-type]


def check_whole(path: Path) -> int:
    """The order of a complete checkpoint, of which all files are of one save."""
    whole = read_whole(path)
    assert whole is not None, path
    assert len(whole.files) == whole.save.world
    for entry in (*whole.files, whole.metadata):
        data = (path / entry.file).read_bytes()
        assert data == content(whole.save, whole.order), entry
        assert len(data) == entry.size
        assert hashlib.sha256(data).hexdigest() == entry.sha256
    return whole.order
