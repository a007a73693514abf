"""One test a finding: the damage is made, seen, mended where that is possible, and gone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.database.changes import changing
from rla_client.database.fsck import find_faults, mend

NOW = time.time()


def torn_row(log: Path) -> None:
    with (log / "progress.csv").open("a") as file:
        file.write("1.5,12")


def torn_json(log: Path) -> None:
    (log / "note.json").write_text('{"tags": [')


def torn_parameters(log: Path) -> None:
    (log / "parameter.json").write_text("{")


def torn_archive(log: Path) -> None:
    path = Path(str(log).replace("/log/", "/archive_tester/") + ".json")
    path.write_text("{")


def short_rows(log: Path) -> None:
    with (log / "progress.csv").open("a") as file:
        file.write("1.5\n")


def empty_item(log: Path) -> None:
    log.with_name("11-00-00-000000_noip_&").mkdir()


def orphan(log: Path) -> None:
    other = log.with_name("10-00-00-000000_noip_&")
    folder = Path(str(other).replace("/log/", "/results/"))
    folder.mkdir()
    (folder / "x.png").write_bytes(b"1")


def no_params(log: Path) -> None:
    other = log.with_name("10-00-00-000000_noip_&")
    other.mkdir()
    (other / "log.txt").write_text("x")


def temp_file(log: Path) -> None:
    path = log / ".rla-tmp-0123"
    path.write_text("x")
    os.utime(path, (NOW - 2 * 86400,) * 2)


def temp_file_beside(log: Path) -> None:
    temp_file(log.parent)


def stray(log: Path) -> None:
    (log.parent / "what is this").write_text("x")


def stale_state(log: Path) -> None:
    run = json.loads((log / "run.json").read_text()) | {"state": "running", "updated": NOW - 2 * 86400}
    (log / "run.json").write_text(json.dumps(run))


def step_differs(log: Path) -> None:
    run = json.loads((log / "run.json").read_text()) | {"time_step": 12345}
    (log / "run.json").write_text(json.dumps(run))


@pytest.mark.parametrize(
    ("damage", "kind", "mended"),
    [
        (torn_row, "torn-row", True),
        (torn_json, "torn-json", True),
        (torn_parameters, "torn-json", False),
        (torn_archive, "torn-archive", False),
        (short_rows, "short-rows", False),
        (empty_item, "empty-item", True),
        (orphan, "orphan", False),
        (no_params, "no-params", False),
        (temp_file, "temp-file", True),
        (temp_file_beside, "temp-file", True),
        (stray, "stray", False),
        (stale_state, "stale-state", True),
        (step_differs, "step-differs", True),
    ],
)
def test_a_fault_is_seen_mended_and_gone(
    root: Path, make_run: Callable[..., str], damage: Callable[[Path], None], kind: str, mended: bool
) -> None:
    index = make_run()
    assert find_faults(root, NOW) == []
    damage(root / "log" / "task" / index)
    (fault,) = find_faults(root, NOW)
    assert (fault.kind, fault.mendable) == (kind, mended)
    if mended:
        with changing(root, NOW):
            mend(root, fault, NOW)
        assert find_faults(root, NOW) == []
        assert find_faults(root, NOW, "task") == []


def test_a_live_run_is_left_alone(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run(state="running")
    torn_row(root / "log" / "task" / index)
    assert find_faults(root, time.time()) == []


def test_the_originals_data_has_no_faults_that_could_be_mended_wrongly(legacy: Path) -> None:
    assert [fault for fault in find_faults(legacy, NOW) if fault.mendable] == []
