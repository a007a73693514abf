"""The machines of the fleet on the page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rla_client.database.database import Database
from rla_client.database.records.fleet import FLEET_FOLDER, MAX_MACHINES, MAX_STATUS_BYTES, fleet_files
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@pytest.fixture(autouse=True)
def some_run(make_run: MakeRun) -> None:
    make_run()


def leave(root: Path, host: str, **changes: Any) -> Path:
    folder = root / FLEET_FOLDER
    folder.mkdir(exist_ok=True)
    status = {"format": 1, "host": host, "version": "1.0", "backlog": {"files": 2, "bytes": 10}, "runs": []}
    path = folder / f"{host}.json"
    path.write_text(json.dumps({**status, **changes}))
    return path


def test_the_fleet_on_the_master(root: Path, page_server: Callable[..., PageServer]) -> None:
    run = {"item": "task/x", "state": "running", "time_step": 5}
    path = leave(root, "<b>box</b>".replace("/", "_"), runs=[run, 5])
    written = time.time() - 300
    os.utime(path, (written, written))
    (one,) = page_server(root).ask("fleet")["machines"]
    assert (one["host"], one["version"], one["runs"], one["backlog"]["files"]) == (
        "<b>box<_b>",
        "1.0",
        [run],
        2,
    )
    assert 299 < one["age_s"] <= time.time() - written + 1
    assert Database(root).tables() == ["task"]


def test_a_fleet_that_cannot_be_asked_says_why(root: Path, page_server: Callable[..., PageServer]) -> None:
    server = page_server(root)
    assert server.ask("fleet") == {"machines": []}
    asked = server.ask("fleet", {"network": True})
    assert "no database of this machine goes to a master" in asked["error"]
    assert asked["machines"] == []


def test_hostile_status_files(root: Path, tmp_path: Path) -> None:
    leave(root, "good", runs="no list", backlog=None, version=["x"])
    folder = root / FLEET_FOLDER
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[]")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "large.json").write_text('{"host": "' + "x" * MAX_STATUS_BYTES + '"}')
    (folder / "bytes.json").write_bytes(b"\xff\xfe")
    (folder / ".rla-tmp-x.json").write_text("{}")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    secret = tmp_path / "secret.json"
    secret.write_text('{"host": "secret"}')
    (folder / "link.json").symlink_to(secret)
    found = fleet_files(root)
    assert [(one["host"], one["runs"], one["backlog"]) for one in found] == [("good", [], None)]
    for number in range(MAX_MACHINES + 10):
        leave(root, f"m{number}")
    assert len(fleet_files(root)) <= MAX_MACHINES


def test_a_fleet_folder_that_is_a_link_is_none(root: Path, tmp_path: Path) -> None:
    leave(tmp_path, "elsewhere")
    (root / FLEET_FOLDER).symlink_to(tmp_path / FLEET_FOLDER)
    assert fleet_files(root) == []


def test_numbers_that_json_has_not(root: Path, page_server: Callable[..., PageServer]) -> None:
    (root / FLEET_FOLDER).mkdir()
    (root / FLEET_FOLDER / "x.json").write_text(
        '{"host": "x", "runs": [{"time_step": NaN}], "backlog": {"files": Infinity}}'
    )
    machines = page_server(root).ask("fleet")["machines"]
    assert [one["runs"] for one in machines] in ([[{"time_step": "nan"}]], [])
    assert Site([root]).databases
