"""Folders of a run that stores nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.forked import in_forked_child

from rla_client.contract.errors import ArgumentError
from rla_client.run.temporary_item import TemporaryItem


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
