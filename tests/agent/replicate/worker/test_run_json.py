"""Items that say of themselves that they stay here are not scanned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla_agent.replicate.worker.run_json import ItemRun, read_run


@pytest.mark.parametrize(
    ("said", "goes"), [({}, True), ({"replicate": True}, True), ({"replicate": False}, False)]
)
def test_run_json_says_whether_an_item_goes(tmp_path: Path, said: dict[str, bool], goes: bool) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"host": "here", "state": "finished", **said}))
    run = read_run(bytes(path), (0, 0))
    assert isinstance(run, ItemRun)
    assert run.goes is goes


@pytest.mark.parametrize("text", ["no JSON", "[]", "[" * 100_000])
def test_a_run_json_that_says_nothing_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    assert read_run(bytes(path), (0, 0)) is None
