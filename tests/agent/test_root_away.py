"""A data root that is away for a moment, and an item that is really removed."""

from __future__ import annotations

import csv
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from crash.lone import LoneStream, Side
from crash.oracle import event_records

from rla_agent.following import follow, new_run_record
from rla_agent.ingest import Position
from rla_agent.jobs import JobDesk, JobKind
from rla_agent.root_away import waits_for_root
from rla_agent.state import Changes, JobRow
from rla_client.config import AgentConfig
from rla_client.outbox import Outbox
from rla_client.places import Places
from rla_client.protocol import FrameKind, pack
from rla_client.run import make_opening

LOG = "log/table/run"
OpenRun: TypeAlias = Callable[..., Outbox]


@pytest.fixture
def open_run(places: Places) -> Iterator[Callable[..., Outbox]]:
    """`open_run(root, log)`: where the run's records go in; let go of at the end."""
    made: list[Outbox] = []

    def make(root: Path, log: str = LOG) -> Outbox:
        (root / log).mkdir(parents=True)
        opening = make_opening(
            root=root, folders={"log": log}, sinks=("csv", "json", "tensorboard"), names={}, item={}
        )
        made.append(Outbox(places, opening, AgentConfig(autostart=False)))
        return made[-1]

    yield make
    for outbox in made:
        outbox.close("finished", "")


def put(outbox: Outbox, *steps: int) -> None:
    for step in steps:
        now = time.time()
        assert outbox.put(FrameKind.ROW, pack([step, now, {"v": step}]), now, 1)


def steps_in(log: Path) -> list[int]:
    with (log / "progress.csv").open(newline="") as file:
        return [int(row["time-step"]) for row in csv.DictReader(file)]


def delete(folder: Path) -> None:
    """As `rm -rf` does it; a run.json that is just being written may come in between."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    pytest.fail(f"{folder} cannot be deleted")


def states(agent: Any) -> list[str]:
    return [run["state"] for run in agent.status()["runs"]]


@pytest.mark.parametrize(("killed", "log"), [(False, LOG), (True, LOG), (False, ".")])
def test_a_root_that_was_moved_away_and_back_has_each_row_once(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any], *, killed: bool, log: str
) -> None:
    root = tmp_path / "db"
    outbox = open_run(root, log)
    put(outbox, *range(5))
    assert outbox.flush(20)
    os.rename(root, tmp_path / "away")
    put(outbox, *range(5, 10))
    wait_until(
        lambda: "is not here" in str(agent.status()["problems"]),
        what="a stream that waits for its root",
    )
    assert states(agent) == ["running"]
    put(outbox, *range(10, 12))
    if killed:
        agent.restart()
    os.rename(tmp_path / "away", root)
    put(outbox, *range(12, 15))
    wait_until(lambda: outbox.flush(5), what="rows in the root that came back")
    assert steps_in(root / log) == list(range(15))
    assert len((root / log / "progress.json").read_text().splitlines()) == 15
    (events,) = (root / log / "tb" / "events").iterdir()
    assert len(event_records(events)) == 16
    outbox.close("finished", "")
    wait_until(lambda: not os.listdir(agent.places.spool), what="the end of the stream")
    assert steps_in(root / log) == list(range(15))
    (run,) = agent.status()["runs"]
    assert (run["state"], run["rows"]) == ("finished", 15)


@pytest.mark.parametrize("log", [LOG, "."])
def test_a_root_that_was_deleted_is_not_waited_for(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any], log: str
) -> None:
    outbox = open_run(tmp_path / "db", log)
    put(outbox, *range(5))
    assert outbox.flush(20)
    delete(tmp_path / "db")
    put(outbox, 5)
    wait_until(lambda: states(agent) == ["removed"], what="a removed run")
    outbox.close("finished", "")
    wait_until(lambda: not os.listdir(agent.places.spool), what="the end of the stream")
    assert not (tmp_path / "db").exists()


def test_an_item_that_is_half_deleted_is_not_made_again(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    root = tmp_path / "db"
    outbox = open_run(root)
    put(outbox, *range(5))
    assert outbox.flush(20)
    os.unlink(root / LOG / "progress.csv")
    put(outbox, 5)
    wait_until(
        lambda: "progress.csv" in str(agent.status()["problems"]),
        what="a commit that notices",
    )
    delete(root / "log" / "table")
    wait_until(lambda: states(agent) == ["removed"], what="a removed run")
    assert os.listdir(root / "log") == []
    outbox.close("finished", "")
    wait_until(lambda: not os.listdir(agent.places.spool), what="the end of the stream")
    assert os.listdir(root / "log") == []


def test_what_was_not_durable_is_read_again_after_the_root_came_back(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        side.commit()
        lone.row({"v": 2})
        side.read()
        lone.root.rename(tmp_path / "away")
        side.commit()
        assert side.stream.removed
        assert waits_for_root(side.stream, side.files)
        assert not side.stream.removed
        assert len(side.files) == 0, "open files hold an unmounted file system"
        (tmp_path / "away").rename(lone.root)
        os.truncate(lone.root / "progress.csv", side.durable_sizes()[str(lone.root / "progress.csv")])
        side.come_back()
        lone.row({"late": 3})
        side.read_all()
        side.commit()
        assert side.stream.rows == 3
    lines = (lone.root / "progress.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["seq", "0", "1", "2"]


def test_an_item_that_was_missed_for_a_moment_goes_on(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        side.stream.removed = True  # its folder was looked for between two renames
        assert waits_for_root(side.stream, side.files)
        record = follow(side.stream, new_run_record(side.stream), time.time(), 60.0)
        assert record.rows == 0, "an agent that is killed now counts them again"
        side.come_back()
        lone.row({"v": 2})
        side.read_all()
        assert side.stream.new_rows == 2, "rows that the run's record counts twice"
        side.commit()
    assert (lone.root / "progress.csv").read_text().count("\n") == 3


def test_jobs_wait_for_the_root_too(tmp_path: Path) -> None:
    done: list[object] = []
    kinds = {"kind": JobKind(lambda fields, _context: done.append(fields), media=False)}
    with Side(LoneStream(tmp_path)) as side, ThreadPoolExecutor(1) as pool:
        stream = side.stream
        desk = JobDesk(pool, Places(tmp_path / "state", tmp_path / "runtime"), kinds, lambda: None)
        stream.new_jobs = [JobRow(stream.name, Position(1, 1), "kind", pack({}))]
        desk.add_changes([stream], Changes())
        stream.root_away = True
        desk.start({stream.name: stream})
        pool.submit(int).result()
        assert done == []
        assert desk.pending(stream.name, media=True)
        stream.root_away = False
        desk.start({stream.name: stream})
        pool.submit(int).result()
        assert done == [{}]
