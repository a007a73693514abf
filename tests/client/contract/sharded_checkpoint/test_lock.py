"""The lock of a folder's sharded checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sharded_folders import RUN, identity, parts_path, write_part

from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock
from rla_client.contract.sharded_checkpoint import lock
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import LOCK_FILE
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.removal import remove, remove_final

SAVE = identity()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: raise_fence(folder, RUN, 9),
        lambda folder: remove(folder, parts_path(folder, SAVE).name),
        lambda folder: remove_final(folder, "checkpoint_1.dcp", SAVE.token),
        publish_all,
    ],
    ids=["raise_fence", "remove", "remove_final", "publish"],
)
def test_what_changes_something_waits_for_the_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    write_part(tmp_path, SAVE, 0)
    monkeypatch.setattr(lock, "PUBLISHER_S", 0.1)
    with closing_fd(os.open(tmp_path / ".rla-parts" / LOCK_FILE, os.O_RDWR | os.O_CREAT)) as other:
        assert try_lock(other)
        before = sorted(os.listdir(tmp_path / ".rla-parts"))
        with pytest.raises(BlockingIOError, match="has held the lock"):
            change(tmp_path)
        assert sorted(os.listdir(tmp_path / ".rla-parts")) == before
    change(tmp_path)
