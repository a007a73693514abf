"""The lake says what the files say, at any time, whatever happens to either."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.written_runs import MakeRun, write_run

from rla_client import database
from rla_client.contract.errors import DatabaseError
from rla_client.database.catalogue import Catalogue
from rla_client.database.curves.progress_csv import read_columns
from rla_client.database.lake import build_plan as build_plan_module
from rla_client.database.lake.build import build
from rla_client.database.lake.build_plan import FEW, EndedRun, plan
from rla_client.database.lake.lake_reader import Lake, PartRuns
from rla_client.database.lake.lake_writer import building
from rla_client.database.lake.manifest import LAKE, MAX_RUNS, LakePart, read_parts
from rla_client.database.lake.status import status
from rla_client.database.lake.verify import verify
from rla_client.database.records.notes import change_note

CELLS = {
    "numbers": "a,time-step\n0.1,1\n-0.0,2\n1e308,3\n9007199254740993,4\n",
    "nothing": "a,time-step\n,1\nnan,2\nNaN,3\n-nan,4\ninf,5\n-inf,6\n",
    "texts": 'a,b,time-step\nhello,1,1\n"x,\ny",2,2\nTrue,,3\n,text,4\n',
    "late": "a,time-step\n1,1\n2,2\n",
    "short": "a,b,time-step\n1\n1,2,3\n1,2,3,4,5\n",
    "header": "a,time-step\n",
    "torn": "a,time-step\n1,1\n2,",
    "empty": "",
    "twice": "a,a,time-step\n1,2,3\n",
    "large": "a,b,time-step\n" + "".join(f"{n / 7!r},{'nan' if n % 3 else ''},{n}\n" for n in range(4000)),
}


def write_csv(root: Path, index: str, text: str) -> Path:
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text(text)
    return path


def fill(root: Path) -> list[str]:
    found = []
    for number, text in enumerate(CELLS.values()):
        found.append(write_run(root, number=number, kinds=("log", "hyperparameter")))
        write_csv(root, found[-1], text)
    return found


def now() -> float:
    return time.time() + 1


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        np.array_equal(left[name].view(np.uint64), right[name].view(np.uint64)) for name in left
    )


def check_whole(root: Path, indexes: list[str]) -> None:
    """What the lake gives is, bit by bit, what the files give."""
    names = ["a", "b", "return", "time-step", "timestamp", "no such"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Lake(root).columns([("task", index) for index in indexes], names, time.time_ns())
    for (table, index), columns in found.items():
        path = root / "log" / table / index / "progress.csv"
        expected = read_columns(path, names) if path.exists() else {}
        assert same({name: np.array(column) for name, column in columns.items()}, expected), index
    assert not verify(root, now()).wrong


def test_the_lake_gives_what_the_files_give(root: Path) -> None:
    indexes = fill(root)
    indexes.append(write_run(root, number=50, kinds=("log",)))
    (root / "log" / "task" / indexes[-1] / "progress.csv").unlink()
    report = build(root, now())
    assert report is not None
    assert (report.read, report.parts, report.problems) == (len(indexes), 1, [])
    assert len(Lake(root).columns([("task", index) for index in indexes], ["a"], time.time_ns())) == len(
        indexes
    )
    check_whole(root, indexes)
    assert verify(root, now()).checked == len(indexes)


def test_the_catalogue_takes_its_rows_from_the_lake(root: Path, tmp_path: Path) -> None:
    fill(root)
    build(root, now())
    lake = Lake(root)
    with Catalogue(root, tmp_path / "one") as plain, Catalogue(root, tmp_path / "two", lake.rows) as seeded:
        assert sorted(plain.refresh(time.time_ns())) == sorted(seeded.refresh(time.time_ns()))
        assert plain.records() == seeded.records()


def test_what_changed_is_read_from_the_files(root: Path, make_run: MakeRun) -> None:
    indexes = [make_run(number=number) for number in range(8)]
    build(root, now())
    db = database.open(root)
    log = root / "log" / "task"
    with (log / indexes[0] / "progress.csv").open("a") as file:
        file.write("77.5,10,1.0\n")
    change_note(root, f"task/{indexes[1]}", add=["best"], note="look")
    run = json.loads((log / indexes[2] / "run.json").read_text()) | {"state": "running"}
    (log / indexes[2] / "new").write_text(json.dumps(run))
    (log / indexes[2] / "new").rename(log / indexes[2] / "run.json")
    for kind in ("log", "code", "checkpoint", "hyperparameter", "results", "tmp_data"):
        shutil.rmtree(root / kind / "task" / indexes[3])
    (root / "archive_tester" / "task" / f"{indexes[3]}.json").unlink()
    shutil.rmtree(db.state_folder, ignore_errors=True)  # a machine that never looked
    found = {record.index: record for record in db.records()}
    assert found[indexes[0]].metrics["return"] == 77.5
    assert found[indexes[1]].tags == ("best",)
    assert found[indexes[2]].state == "running"
    assert indexes[3] not in found
    curves = db.curves(list(found.values()), "return")
    assert curves[curves["index"] == indexes[0]]["value"].iloc[-1] == 77.5
    assert status(root, now()).changed == 4
    report = build(root, now())
    assert report is not None
    assert (report.read, report.removed) == (2, 2)  # the one that lives again is out, too
    assert status(root, now()).changed == 0
    check_whole(root, indexes)


def test_live_runs_stay_out(root: Path, make_run: MakeRun) -> None:
    make_run(number=1, state="running")
    make_run(number=2, state=None)
    ended = make_run(number=3)
    build(root, now())
    assert list(Lake(root).signatures()) == [("task", ended)]
    later = build(root, time.time() + 4000)  # nobody wrote for an hour
    assert later is not None
    assert later.runs == 3


def test_only_what_is_new_is_read(root: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_plan_module, "MAX_RUNS", 4)
    monkeypatch.setattr(build_plan_module, "FEW", 1)
    indexes = [make_run(number=number) for number in range(10)]
    build(root, now())
    before = {part.name for part in read_parts(root)}
    assert sorted(part.runs for part in read_parts(root)) == [2, 4, 4]
    again = build(root, now())
    assert again is not None
    assert (again.read, again.parts) == (0, 0)
    indexes.append(make_run(number=30))
    report = build(root, now())
    assert report is not None
    assert (report.read, report.parts, report.runs) == (1, 1, 11)
    assert len(before & {part.name for part in read_parts(root)}) == 2
    check_whole(root, indexes)


def ended(count: int, start: int = 0, size: int = 10) -> list[EndedRun]:
    return [
        EndedRun(f"2026/01/01/{number:06}", f"{number},1,{size}", size)
        for number in range(start, start + count)
    ]


def part_of(runs: list[EndedRun], name: str) -> PartRuns:
    return PartRuns(
        LakePart(name, "t", runs[0].index, runs[-1].index, len(runs), 0, {}, {}, 0.0),
        pa.table(
            {
                "idx": [one.index for one in runs],
                "signature": [one.signature for one in runs],
                "samples": [one.samples for one in runs],
            }
        ),
    )


def test_a_day_of_many_runs_is_several_parts() -> None:
    jobs = plan(ended(3 * MAX_RUNS + 1), [])
    assert [job.runs for job in jobs] == [MAX_RUNS] * 3 + [1]
    large = plan(ended(4, size=30 << 20), [])
    assert [job.runs for job in large] == [1, 1, 1, 1]


def test_parts_that_shrank_are_put_together() -> None:
    runs = ended(2 * MAX_RUNS)
    parts = [part_of(runs[:MAX_RUNS], "a"), part_of(runs[MAX_RUNS:], "b")]
    assert not any(job.dirty for job in plan(runs, parts))
    left = runs[: FEW // 4] + runs[-FEW // 4 :]
    (job,) = plan(left, parts)
    assert job.dirty
    assert sum(len(keep) for _, keep in job.old) == len(left)
    assert job.fresh == []
    assert all(not job.runs for job in plan([], parts))


def test_a_second_builder_steps_back(root: Path, make_run: MakeRun) -> None:
    make_run()
    with building(root) as one:
        assert one is not None
        assert build(root, now()) is None
    assert build(root, now()) is not None


@pytest.mark.parametrize("name", ["runs", "params", "last", "rows", "system", "files", "manifest"])
@pytest.mark.parametrize("how", ["cut", "flipped", "rubbish", "link", "gone"])
def test_damage_is_told_and_the_files_are_read(root: Path, make_run: MakeRun, name: str, how: str) -> None:
    indexes = [make_run(number=number) for number in range(5)]
    build(root, now())
    (part,) = read_parts(root)
    path = root / LAKE / ("manifest.json" if name == "manifest" else f"{part.name}/{name}.parquet")
    harm(path, how)
    db = database.open(root)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        records = db.records()
        curves = db.curves(records, "return")
        assert [record.index for record in records] == indexes
        assert len(curves) == 50
        assert curves["value"].sum() == 5 * 22.5
        found = verify(root, now())
        report = build(root, now())
    assert report is not None
    assert report.runs == 5
    if how != "flipped" and (name, how) != ("manifest", "gone"):
        assert told or found.broken or found.wrong
    check_whole(root, indexes)


def test_no_flipped_byte_changes_a_curve(root: Path, make_run: MakeRun) -> None:
    indexes = [make_run(number=number, rows=300) for number in range(5)]
    build(root, now())
    (part,) = read_parts(root)
    path = root / LAKE / part.name / "rows.parquet"
    whole = path.read_bytes()
    told_of = 0
    for place in range(0, len(whole), max(len(whole) // 150, 1)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = Lake(root).columns([("task", index) for index in indexes], ["return"], time.time_ns())
        assert told or len(found) == 5
        told_of += bool(told)
        assert all(columns["return"].tolist() == [n * 0.5 for n in range(300)] for columns in found.values())
    assert told_of > 30


def harm(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[len(data) // 2] ^= 0xFF
    elif how == "cut":
        data = data[: len(data) // 2]
    elif how == "rubbish":
        data = bytearray(os.urandom(len(data)))
    path.unlink()
    if how == "link":
        path.symlink_to("/etc/passwd")
    elif how != "gone":
        path.write_bytes(data)


@contextmanager
def file_size_limit(most: int) -> Iterator[None]:
    """No file may grow beyond: as a full disk, every write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_lake(root: Path, make_run: MakeRun) -> None:
    indexes = [make_run(number=number) for number in range(3)]
    build(root, now())
    before = read_parts(root)
    indexes.append(make_run(number=9))
    with Catalogue(root) as catalogue:
        catalogue.refresh(int(now() * 1e9))
    with file_size_limit(2000), pytest.raises(DatabaseError, match="what it had stays"):
        build(root, now())
    assert read_parts(root) == before
    check_whole(root, indexes)
    build(root, now())
    assert len(Lake(root).signatures()) == 4


KILLED = """
import os, signal, sys, time
left = int(sys.argv[2])
def counted(call):
    def wrapper(*words, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*words, **options)
    return wrapper
from rla_client.database import catalogue
from rla_client.database import change_signatures
from rla_client.database.lake.build import build
catalogue.RACY_NS = change_signatures.RACY_NS = 0
for name in ("fsync", "replace", "unlink", "mkdir", "rename"):
    setattr(os, name, counted(getattr(os, name)))
build(__import__("pathlib").Path(sys.argv[1]), time.time() + 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.further)])
def test_a_kill_at_any_step_leaves_a_lake_that_holds(root: Path, make_run: MakeRun, every: int) -> None:
    indexes = [make_run(number=number) for number in range(3)]
    build(root, now())
    step = 0
    while True:
        step += every
        change_note(root, f"task/{indexes[0]}", note=f"{step}")
        indexes.append(make_run(number=10 + step % 45, info=f"&step={step}"))
        done = subprocess.run([sys.executable, "-c", KILLED, str(root), str(step)], check=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(Lake(root).signatures()) >= 3
        check_whole(root, indexes)
        if done.returncode == 0:
            break
        assert done.returncode == -9
    assert step > 15  # two syncs a file, at least
    build(root, now())
    build(root, now())
    folders = {path.parent.name for path in (root / LAKE / "tables").rglob("*.parquet")}
    assert folders == {part.name.rpartition("/")[2] for part in read_parts(root)}
    assert not list((root / LAKE).rglob(".rla-tmp-*"))


def test_a_reader_from_before_a_build_still_finds_its_parts(root: Path, make_run: MakeRun) -> None:
    indexes = [make_run(number=number) for number in range(3)]
    build(root, now())
    reader = Lake(root)
    make_run(number=20)
    build(root, now())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(reader.columns([("task", index) for index in indexes], ["return"], time.time_ns())) == 3


def test_verify_finds_what_no_signature_shows(root: Path, make_run: MakeRun) -> None:
    index = make_run()
    make_run(number=7, table="other")
    build(root, now())
    run = root / "log" / "task" / index / "run.json"
    run.write_text(run.read_text().replace("finished", "failed  "))  # in place: no folder changes
    found = verify(root, now())
    assert found.wrong == [f"task/{index}"]
    assert found.dropped
    assert [part.table for part in read_parts(root)] == ["other"]


CELL = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(["", "nan", "inf", "-inf", "True", "False", "text", '"a,b"', "1_0", " 5", "ä"]),
)
TABLE = st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=12)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables=st.lists(TABLE, min_size=1, max_size=4), step=st.integers(0, 3))
def test_any_runs_are_in_the_lake_as_in_their_files(
    tmp_path_factory: pytest.TempPathFactory, tables: list[list[list[str]]], step: int
) -> None:
    root = tmp_path_factory.mktemp("any")
    indexes = []
    for number, rows in enumerate(tables):
        indexes.append(write_run(root, number=number, kinds=("log",)))
        names = ["a", "b", "time-step"][: 3 - (number == step)]
        write_csv(
            root,
            indexes[-1],
            "\n".join([",".join(names), *(",".join(row[: len(names)]) for row in rows), ""]),
        )
        if number == step:
            build(root, now())  # the others come later, into the same part
    report = build(root, now())
    assert report is not None
    assert report.runs == len(tables)
    found = Lake(root).columns([("task", index) for index in indexes], ["a"], time.time_ns())
    assert len(found) == len(tables)
    check_whole(root, indexes)
