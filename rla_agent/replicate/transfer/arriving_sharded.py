"""Arrival of sharded checkpoints from the master.

Their files come one by one. `whole.json` comes last, after all its files were compared with it; and before
any other file of a checkpoint is replaced, the local `whole.json` is deleted. So an interrupted fetch, or one
during which the master got a later save, leaves nothing here that could be mistaken for a complete
checkpoint.
"""

from __future__ import annotations

import os
from contextlib import suppress

from rla_agent.replicate.backend.errors import TransientError
from rla_agent.replicate.worker import sharded_order
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import ARCHIVED_TABLE
from rla_client.contract.sharded_checkpoint.check import shard_problems
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_NAME
from rla_client.contract.sharded_checkpoint.records import MAX_WHOLE_BYTES, Whole


def split(path: bytes) -> tuple[bytes, bytes] | None:
    """(folder of the sharded checkpoint, path below it) of a file below a data root; None for other files."""
    first, _, rest = path.partition(b"/")
    kind = rest.partition(b"/")[0] if first == os.fsencode(ARCHIVED_TABLE) else first
    return sharded_order.split(os.fsdecode(kind), path)


def is_mark(path: bytes) -> bool:
    """Whether a file is the `whole.json` of a sharded checkpoint."""
    found = split(path)
    return found is not None and sharded_order.sort_of(found[1]) == sharded_order.WHOLE


def prepare(root: str, path: bytes) -> None:
    """Mark a checkpoint incomplete before one of its files is replaced.

    Raises:
        OSError: that failed.
    """
    found = split(path)
    if found is not None:
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            held_folder(root, f"{os.fsdecode(found[0])}/{OWN_FOLDER}") as own,
        ):
            os.unlink(own / WHOLE_NAME)


def check(root: str, path: bytes, descriptor: int) -> None:
    """Check that all files of a fetched `whole.json` are here; other files pass.

    Raises:
        TransientError: it is not; the next fetch may bring it.
    """
    found = split(path)
    if found is None or not is_mark(path):
        return
    try:
        size = os.fstat(descriptor).st_size
        whole = Whole.decode(os.pread(descriptor, min(size, MAX_WHOLE_BYTES), 0))
        with held_folder(root, os.fsdecode(found[0])) as here:
            problem = next(shard_problems(here, whole, hashes=True), "")
    except (OSError, RemoteProtocolError) as error:
        problem = str(error)
    if problem:
        raise TransientError("fetch", path, f"the checkpoint is not whole here: {problem}")
