"""Folders of a run that stores nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.forked import in_forked_child

from rla_client.contract.errors import ArgumentError, NoCheckpointError
from rla_client.run import temporary_item
from rla_client.run.temporary_item import RankZeroFolder, TemporaryItem


def test_a_forked_process_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stand_in = TemporaryItem("table", "info", "noip")
    assert list(tmp_path.iterdir()) == []
    folder = stand_in.log_dir()
    assert in_forked_child(lambda: stand_in.log_dir() != folder)
    assert stand_in.log_dir() == folder
    assert Path(folder).is_dir()


def test_without_a_folder_for_temporary_files_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ArgumentError, match="set TMPDIR"):
        TemporaryItem("table", "info", "noip").log_dir()


def test_what_rank_zero_saves_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary_item, "RANK_ZERO_WAIT_S", 0.1)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    rank = TemporaryItem("t", "", "noip", "rank 1", lambda: RankZeroFolder(folder, "run"))
    rank.save_checkpoint({"x": 1}, "checkpoint", 1)
    assert rank.load_checkpoint("checkpoint", None) == (1, {"x": 1}), "rank 0 has none yet"
    torch.save({"x": "rank 0's"}, folder / "checkpoint_1.pt")
    with monkeypatch.context() as refused:
        refused.setattr(
            "rla_client.checkpoint.direct_write.write_checkpoint", lambda *_: pytest.fail("a copy")
        )
        rank.save_checkpoint({"x": 2}, "checkpoint", 2)
    with pytest.raises(NoCheckpointError, match="was left to rank 0"):
        rank.load_checkpoint("checkpoint", None)
    torch.save({"x": "rank 0's"}, folder / "checkpoint_2.pt")
    assert rank.load_checkpoint("checkpoint", None) == (2, {"x": "rank 0's"})
    rank.save_checkpoint({"x": "own"}, "own", 2)
    assert rank.load_checkpoint("own", 2) == (2, {"x": "own"})


def test_too_large_a_save_says_so_at_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs torch")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary_item, "MAX_KEPT_BYTES", 0)
    rank = TemporaryItem("t", "", "noip", "rank 1")
    for step in (1, 2):
        rank.save_checkpoint({"x": 1}, "checkpoint", step)
    assert capsys.readouterr().out.count("is not kept for a load_checkpoint() of this process") == 1
