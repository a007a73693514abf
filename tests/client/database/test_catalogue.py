from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rla_client.database import open as open_database
from rla_client.database.catalogue import Catalogue, state_folder
from rla_client.database.change_signatures import RACY_NS, Signatures
from rla_client.database.fsck import find_faults
from rla_client.database.lake.build import build as build_lake


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the clock of the reader pass the time in which a time stamp proves nothing."""
    ahead = [0.0]

    def settle() -> None:
        ahead[0] += RACY_NS / 1e9 + 1
        monkeypatch.setattr("rla_client.database.database.clock", lambda: time.time() + ahead[0])

    return settle


def test_new_grown_and_removed_runs_are_seen_at_once(
    root: Path, make_run: Callable[..., str], settle: Callable[[], None]
) -> None:
    database = open_database(root)
    first = make_run(number=1)
    settle()
    assert [record.index for record in database.records()] == [first]
    second = make_run(number=2, rows=3)
    assert [record.index for record in database.records()] == [first, second]
    settle()
    database.records()
    with (root / "log" / "task" / second / "progress.csv").open("a") as file:
        file.write("1.5,77,99.0\n")
    assert database.records()[-1].time_step == 77
    for kind in ("log", "code", "checkpoint", "hyperparameter", "results", "tmp_data"):
        shutil.rmtree(root / kind / "task" / first)
    (root / "archive_tester" / "task" / f"{first}.json").unlink()
    assert [record.index for record in database.records()] == [second]


def test_a_csv_that_was_cut_and_grew_to_its_old_size_is_read_again(
    root: Path, make_run: Callable[..., str], settle: Callable[[], None]
) -> None:
    index = make_run(rows=10)
    settle()
    database = open_database(root)
    assert database.records()[0].time_step == 9
    path = root / "log" / "task" / index / "progress.csv"
    before = path.stat()
    lines = path.read_text().splitlines(keepends=True)
    os.truncate(path, len("".join(lines[:5])))
    with path.open("a") as file:
        file.write("".join(lines[5:-1]) + lines[-1].replace(",9,", ",8,"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # even so
    assert path.stat().st_size == before.st_size
    assert database.records()[0].time_step == 8


def test_a_few_rows_are_as_fresh_as_all_and_leave_the_rest_to_be_read(
    root: Path, make_run: Callable[..., str], settle: Callable[[], None]
) -> None:
    old, middle = (make_run(number=number, rows=3) for number in range(2))
    settle()
    database = open_database(root)
    database.records()
    for index, step in ((old, 70), (middle, 71)):
        with (root / "log" / "task" / index / "progress.csv").open("a") as file:
            file.write(f"1.5,{step},99.0\n")
    new = make_run(number=2, rows=4)
    assert [(r.index, r.time_step) for r in database.records(limit=2)] == [(middle, 71), (new, 3)]
    assert database.find("@last").record.time_step == 3
    assert database.find(old).record.time_step == 70
    assert [record.time_step for record in database.records()] == [70, 71, 3]
    with (root / "log" / "task" / new / "progress.csv").open("a") as file:
        file.write("1.5,72,99.0\n")
    assert database.find("@last").record.time_step == 72
    assert database.find(f"task/{new}").record.time_step == 72
    assert open_database(root).records("task", limit=1)[0].time_step == 72


def test_nothing_is_read_again_when_nothing_changed(
    root: Path, make_run: Callable[..., str], settle: Callable[[], None]
) -> None:
    index = make_run()
    database = open_database(root)
    settle()
    database.records()
    settle()
    reads: list[tuple[int, int]] = []
    database.progress = lambda done, total: reads.append((done, total))
    database.records()
    assert reads == []
    now = (root / "log" / "task" / index).stat().st_mtime_ns  # however long ago that is
    with Signatures(root, now) as signatures:
        assert signatures.of("task", index) == ""
    with Signatures(root, now + 2 * RACY_NS) as signatures:
        assert signatures.of("task", index) not in {"", signatures.of("task", index + "x")}
        assert signatures.of("task", "2026/12/01/09-30-00-123456_x_&") == signatures.of("no", index)


@pytest.mark.parametrize("damage", ["garbage", "version", "missing"])
def test_a_broken_catalogue_is_built_anew(root: Path, make_run: Callable[..., str], damage: str) -> None:
    make_run()
    database = open_database(root)
    database.records()
    path = state_folder(root) / "catalogue.db"
    if damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    elif damage == "version":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 999")
    else:
        shutil.rmtree(path.parent)
    assert len(database.records()) == 1


def test_broken_files_are_problems_of_their_run_only(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1)
    index = make_run(number=2)
    (root / "log" / "task" / index / "run.json").write_text("{")
    (root / "log" / "task" / index / "progress.csv").write_bytes(b"a\0\n1\n")
    good, bad = open_database(root).records()
    assert good.problems == ()
    assert len(bad.problems) == 2
    assert all(index in problem for problem in bad.problems)


@pytest.mark.parametrize(
    "place", ["{run}/progress.csv", "{run}/progress.rank1.csv", "{run}", "{day}", "2026/12", "2027"]
)
def test_a_link_to_itself_hides_no_other_run(
    root: Path, make_run: Callable[..., str], settle: Callable[[], None], place: str
) -> None:
    """What cannot be read at all, as after a fault of the disk, is left out alone."""
    other, index = make_run(number=1), make_run(number=2)
    path = root / "log" / "task" / place.format(run=index, day="2026/11/22")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    settle()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        database = open_database(root)
        assert other in [record.index for record in database.records()]
        assert other in [record.index for record in database.records()]
        build_lake(root, time.time())
    if index not in place.format(run=index, day=""):
        assert any(str(path) in str(one.message) for one in told)


def test_a_state_or_a_host_that_is_no_text(root: Path, make_run: Callable[..., str]) -> None:
    for number, state in enumerate(([["running"]], {"a": 1}, 1, "\ud800", None)):
        index = make_run(number=number)
        content = {"format": 1, "state": state, "host": "\udfff", "reason": "\ud800"}
        (root / "log" / "task" / index / "run.json").write_text(json.dumps(content))
    records = open_database(root).records()
    assert [record.state for record in records] == [None, None, None, "?", None]
    assert {record.host for record in records} == {"?"}
    assert "stale-state" not in {fault.kind for fault in find_faults(root, time.time())}


def test_a_catalogue_that_cannot_be_written_is_kept_in_memory(
    root: Path, make_run: Callable[..., str]
) -> None:
    make_run()
    with Catalogue(root, Path("/proc/nowhere")) as catalogue:
        catalogue.refresh(time.time_ns())
        assert catalogue.count() == 1


def test_a_run_that_another_process_found_removed_does_not_come_back(
    root: Path, make_run: Callable[..., str], tmp_path: Path
) -> None:
    """Two look at once: one has listed a run and reads it, while the other sees that it is gone."""
    index, other = make_run(number=1), make_run(number=2)
    later = time.time_ns() + 10 * RACY_NS
    folder = tmp_path / "state"
    with Catalogue(root, folder) as first, Catalogue(root, folder) as second:
        first.refresh_names(later)

        def meanwhile(*_: int) -> None:
            for kind in ("log", "code", "checkpoint", "hyperparameter", "results", "tmp_data"):
                shutil.rmtree(root / kind / "task" / index)
            (root / "archive_tester" / "task" / f"{index}.json").unlink()
            second.refresh(later)

        first.refresh(later, meanwhile)
        first.refresh(later)
        assert [record.index for record in first.records()] == [other]


def test_several_that_open_a_new_one_at_once_all_see_the_runs(
    root: Path, make_run: Callable[..., str], tmp_path: Path
) -> None:
    make_run()

    def look(folder: Path, together: threading.Barrier) -> int:
        together.wait()
        with Catalogue(root, folder) as catalogue:
            return len(catalogue.refresh(time.time_ns()))

    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            work = partial(look, tmp_path / str(number), threading.Barrier(8))
            assert [found.result() for found in [pool.submit(work) for _ in range(8)]] == [1] * 8
