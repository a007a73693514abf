"""What others could have written is loaded in full only by the user's word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoint_lab import lock_held, work

from rla_client.checkpoint.saver import CheckpointSaver
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import UntrustedCheckpointError
from rla_client.contract.layout import FETCHED_MARK

torch = pytest.importorskip("torch")


def _others_may_write(path: Path) -> None:
    path.chmod(0o666)


def _folder_is_open(path: Path) -> None:
    path.parent.chmod(0o777)


def _is_marked(path: Path) -> None:
    (path.parent / FETCHED_MARK).touch()


def _is_anothers(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize("spoil", [_others_may_write, _folder_is_open, _is_marked, _is_anothers])
def test_what_others_could_have_written_is_not_the_runs_own(
    saver: CheckpointSaver, places: Places, folder: Path, spoil: Callable[[Path], None]
) -> None:
    with lock_held(places):
        saver.save({"model": torch.nn.Linear(2, 2)}, "object", 1)
        saver.save({"w": torch.ones(3)}, "plain", 1)
        work(places, folder)
    assert isinstance(saver.load("object")[1]["model"], torch.nn.Linear)
    for name in ("object", "plain"):
        spoil(folder / f"{name}_1.pt")
    with pytest.raises(UntrustedCheckpointError, match=r"Linear.*trust=True"):
        saver.load("object")
    assert isinstance(saver.load("object", trust=True)[1]["model"], torch.nn.Linear)
    assert torch.equal(saver.load("plain")[1]["w"], torch.ones(3)), "tensors need no trust"
