"""The notes of a table's run_ids."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.layout import LOG
from rla_client.run.resume import run_id_index
from rla_client.run.resume.find_run import find_unfinished


def run_file(root: Path, index: str, **fields: Any) -> None:
    folder = root / LOG / "t" / index
    folder.mkdir(parents=True)
    content = {"run_id": index, "run_key": "r", "state": "killed", "streams": [], **fields}
    (folder / "run.json").write_text(json.dumps(content))


def test_the_newest_unfinished_run_is_found_without_reading_all_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_id_index, "UNNOTED_MAX", 3)
    names = [f"2026/01/0{day}/03-04-05-00000{number}_noip_&" for day in (1, 2) for number in range(4)]
    for name in names:
        run_file(tmp_path, name, run_key="other")
    assert find_unfinished(str(tmp_path), "t", "r") is None
    run_file(tmp_path, "2026/01/01/03-04-05-000008_noip_&")
    run_file(tmp_path, "2026/01/02/03-04-05-000008_noip_&", state="finished")
    read: list[str] = []
    real = run_id_index._run_id

    def reading(path: str) -> tuple[str, bool] | None:
        read.append(path)
        return real(path)

    monkeypatch.setattr(run_id_index, "_run_id", reading)
    found = find_unfinished(str(tmp_path), "t", "r")
    assert found is not None
    assert found.index.path == "2026/01/01/03-04-05-000008_noip_&"
    assert len(read) == 2, "those that were there before are noted"


def test_broken_notes_are_as_none(tmp_path: Path) -> None:
    run_file(tmp_path, "2026/01/01/03-04-05-000001_noip_&")
    name = '{"2026/01/01": {"03-04-05-000001_noip_&": 1}}'
    for content in ("", "[1]", '{"2026/01/01": [1]}', "{" * 9000, name):
        (tmp_path / LOG / "t" / run_id_index.NOTES).write_text(content)
        assert find_unfinished(str(tmp_path), "t", "r") is not None
    assert os.path.exists(tmp_path / LOG / "t" / run_id_index.NOTES)


def test_a_run_whose_file_was_damaged_is_found_again_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_id_index, "UNNOTED_MAX", 0)
    name = "2026/01/01/03-04-05-000001_noip_&"
    run_file(tmp_path, name)
    run_file(tmp_path, "2026/01/01/03-04-05-000002_noip_&", run_key="other")
    path = tmp_path / LOG / "t" / name / "run.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"run_key")])
    assert find_unfinished(str(tmp_path), "t", "r") is None
    path.write_bytes(whole)
    assert find_unfinished(str(tmp_path), "t", "r") is not None
