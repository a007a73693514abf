"""Fence against saves of earlier openings of a run."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import FENCE_FILE
from rla_client.contract.sharded_checkpoint.folder import look, parts_of, read_fence
from rla_client.contract.sharded_checkpoint.lock import publishing_alone
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.records import Fence
from rla_client.contract.sharded_checkpoint.removal import abandon


def raise_fence(folder: Path, run: str, epoch: int) -> None:
    """Allow only saves of this opening of the run to be published from now on; others are abandoned.

    Earlier saves that all ranks had finished are published first.

    Raises:
        OSError: that could not be done.
    """
    publish_all(folder)
    with held_folder(folder, PARTS_FOLDER, create=True) as above, publishing_alone(above):
        former = read_fence(folder)
        if former is not None and former.run == run and former.epoch >= epoch:
            return
        write_atomic(above / FENCE_FILE, Fence(run, epoch).encode())
        fence = Fence(run, epoch)
        for name in parts_of(folder):
            found = look(folder, name)
            saves = [receipt.save for receipt in found.receipts.values()]
            if not saves or any(fence.keeps_out(save) for save in saves):
                abandon(above, above, name)
