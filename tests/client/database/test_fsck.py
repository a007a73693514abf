"""One test a finding: the damage is made, seen, repaired where that is possible, and gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sharded_folders import check_whole, identity, write_part
from support.waiting import wait_until

from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.database.changes.change_lock import changing
from rla_client.database.fsck import find_faults
from rla_client.database.fsck_repairs import repair

NOW = time.time()
ROUNDS = 300


def torn_row(log: Path) -> None:
    with (log / "progress.csv").open("a") as file:
        file.write("1.5,12")


def torn_row_of_a_role(log: Path) -> None:
    (log / "progress.rollout-1.csv").write_text("a,time-step\n1,1\n2,")


def short_rows_of_a_role(log: Path) -> None:
    """Its last time-step is not that of the run."""
    (log / "progress.rollout-1.csv").write_text("a,b,time-step\n1\n1,2,7\n")


def torn_json(log: Path) -> None:
    (log / "note.json").write_text('{"tags": [')


def torn_parameters(log: Path) -> None:
    (log / "parameter.json").write_text("{")


def torn_parameters_everywhere(log: Path) -> None:
    for kind in ("hyperparameter", "code"):
        for path in Path(str(log).replace("/log/", f"/{kind}/")).glob("parameter.*"):
            path.write_text("{")


def torn_archive(log: Path) -> None:
    path = Path(str(log).replace("/log/", "/archive_tester/") + ".json")
    path.write_text("{")


def short_rows(log: Path) -> None:
    with (log / "progress.csv").open("a") as file:
        file.write("1.5\n")


def long_rows(log: Path) -> None:
    with (log / "progress.csv").open("a") as file:
        file.write("1.5,9,3,4,5\n")


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
    os.utime(path, (NOW - 7200,) * 2)


def temp_file_of_pictures(log: Path) -> None:
    """As an agent leaves one that is killed while it draws."""
    folder = Path(str(log).replace("/log/", "/results/")) / "eval"
    folder.mkdir(parents=True)
    path = folder / ".rla-tmp-0123456789abcdef-17-4711"
    path.write_text("x")
    os.utime(path, (NOW - 7200,) * 2)


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
    ("damage", "kind", "repaired"),
    [
        (torn_row, "torn-row", True),
        (torn_row_of_a_role, "torn-row", True),
        (short_rows_of_a_role, "short-rows", True),
        (torn_json, "torn-json", True),
        (torn_parameters, "torn-params", True),
        (torn_parameters_everywhere, "torn-params", False),
        (torn_archive, "torn-archive", True),
        (short_rows, "short-rows", True),
        (long_rows, "short-rows", False),
        (empty_item, "empty-item", True),
        (orphan, "orphan", True),
        (no_params, "no-params", False),
        (temp_file, "temp-file", True),
        (temp_file_beside, "temp-file", True),
        (temp_file_of_pictures, "temp-file", True),
        (stray, "stray", True),
        (stale_state, "stale-state", True),
        (step_differs, "step-differs", True),
    ],
)
def test_a_fault_is_seen_repaired_and_gone(
    root: Path, make_run: Callable[..., str], damage: Callable[[Path], None], kind: str, repaired: bool
) -> None:
    index = make_run()
    assert find_faults(root, NOW) == []
    damage(root / "log" / "task" / index)
    (fault,) = find_faults(root, NOW)
    assert (fault.kind, fault.repairable) == (kind, repaired)
    if repaired:
        with changing(root, NOW):
            repair(root, fault, NOW)
        assert find_faults(root, NOW) == []
        assert find_faults(root, NOW, "task") == []


def test_what_a_repair_takes_away_is_in_the_trash(root: Path, make_run: Callable[..., str]) -> None:
    log = root / "log" / "task" / make_run()
    before = (log / "progress.csv").read_text()
    short_rows(log)
    torn_parameters(log)
    with changing(root, NOW):
        for fault in find_faults(root, NOW):
            repair(root, fault, NOW)
    assert (log / "progress.csv").read_text() == before + "1.5,,\n"
    assert json.loads((log / "parameter.json").read_text()) == {"lr": 0.1, "seed": 0}
    kept = sorted(path.name for path in (root / ".rla" / "trash").rglob("*") if path.is_file())
    assert kept == ["entry.json", "entry.json", "parameter.json", "progress.csv.torn"]


@pytest.mark.slow
def test_what_may_be_somebodys_own_is_repaired_only_when_named(
    root: Path, make_run: Callable[..., str]
) -> None:
    log = root / "log" / "task" / make_run()
    stray(log)
    orphan(log)
    assert fsck(root, "--fix", "-y") == 1
    assert (log.parent / "what is this").exists()
    assert fsck(root, "--fix", "-y", "--only", "stray") == 0
    assert not (log.parent / "what is this").exists()
    assert fsck(root, "--fix", "-y", "--only", "orphan,stray") == 0
    assert fsck(root) == 0


def fsck(root: Path, *words: str) -> int:
    command = [sys.executable, "-m", "rla_client.cli.app", "fsck", "-d", str(root), *words]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_a_live_run_is_left_alone(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run(state="running")
    torn_row(root / "log" / "task" / index)
    assert find_faults(root, time.time()) == []


def test_the_originals_data_has_no_faults_that_could_be_repaired_wrongly(legacy: Path) -> None:
    assert [fault for fault in find_faults(legacy, NOW) if fault.repairable] == []


@pytest.mark.slow
def test_temp_files_that_come_and_go_while_it_looks(root: Path, make_run: Callable[..., str]) -> None:
    """On the master the replicator puts files in place all the time, also those of ended runs."""
    day = root / "archive_tester" / "task" / make_run().rpartition("/")[0]
    loop = "import os, sys\nwhile True:\n open(sys.argv[1], 'w').close()\n os.unlink(sys.argv[1])"
    writer = subprocess.Popen([sys.executable, "-c", loop, str(day / ".rla-tmp-x")])
    try:
        wait_until((day / ".rla-tmp-x").exists, what="the first of them")
        for _ in range(ROUNDS):
            assert find_faults(root, NOW) == []
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.slow
def test_the_last_line_says_what_works(
    rla: Callable[..., Any], root: Path, make_run: Callable[..., str]
) -> None:
    index = make_run(kinds=("archive_tester",))
    where = ("-d", str(root))
    found = rla("fsck", *where)
    assert found.returncode == 1
    assert "`rla fsck --fix` repairs 0; 1 only by `rla fsck --fix --only orphan`" in found.stderr
    left = rla("fsck", "--fix", "-y", *where)
    assert (left.returncode, "--only orphan" in left.stderr) == (1, True)
    refused = rla("fsck", "--fix", "--only", "orphan", *where)  # nobody to ask: as `rla rm`
    assert (refused.returncode, "--yes" in refused.stderr) == (1, True)
    assert rla("fsck", "--fix", "--only", "orphan", "-y", *where).returncode == 0
    assert not (root / "archive_tester" / "task" / f"{index}.json").exists()
    assert rla("fsck", *where).returncode == 0


def test_a_quote_that_is_closed_nowhere(root: Path, make_run: Callable[..., str]) -> None:
    """Far above the rows that lists look at."""
    path = root / "log" / "task" / make_run() / "progress.csv"
    rows = "".join(f"{step},1,y\n" for step in range(50_000))
    path.write_text(f'time-step,a,note\n0,1,"{"x" * 200_000}\n{rows}')
    (fault,) = (one for one in find_faults(root, NOW) if one.where.endswith("progress.csv"))
    assert "a quote is never closed: the 50000 lines" in fault.text


def test_of_sharded_checkpoints_it_says_what_is_incomplete_or_damaged(
    root: Path, make_run: Callable[..., str]
) -> None:
    folder = root / "checkpoint" / "task" / make_run()
    folder.mkdir(parents=True, exist_ok=True)
    for step, ranks in ((1, 2), (2, 2), (3, 2), (4, 1)):
        for rank in range(ranks):
            write_part(folder, identity(step), rank)
        if step < 3:
            publish_all(folder)
    shard = folder / "checkpoint_1.dcp" / "__1_0.distcp"
    shard.write_bytes(b"x" * shard.stat().st_size)
    (folder / "checkpoint_2.dcp" / "__0_0.distcp").unlink()
    found = {(one.kind, one.text) for one in find_faults(root, NOW, hashes=True) if "checkpoint" in one.where}
    assert found == {
        ("bad-shard", "__1_0.distcp is not what was saved (SHA-256)"),
        ("bad-shard", "__0_0.distcp is missing"),
        ("unpublished", "all its parts are there"),
        ("half-save", "checkpoint_4: 1 of 2 shards; missing: rank 1"),
    }
    with changing(root, NOW):
        for fault in find_faults(root, NOW):
            if fault.repairable:
                repair(root, fault, NOW)
    assert [one.kind for one in find_faults(root, NOW)] == ["bad-shard"]  # without the hashes
    check_whole(folder / "checkpoint_3.dcp")
