"""A data root that is away for a moment, and an item that is really removed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import pytest
from support.lone import LoneStream, Side
from support.oracle import event_records

from rla_agent.jobs.job_queue import JobContext, JobKind, JobQueue, RetryLaterError, run_job
from rla_agent.jobs.runners import KINDS
from rla_agent.model.records import Position
from rla_agent.model.stream_states import OutputState, StreamEvent, StreamState
from rla_agent.outputs.data_root_presence import root_is_away, same_root
from rla_agent.pipeline.data_root_watch import job_context, look_for_item
from rla_agent.pipeline.run_liveness import follow
from rla_agent.pipeline.run_registry import new_run_record
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import CommitChanges, JobRow
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.contract.errors import RlaError
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND, CheckpointJob
from rla_client.contract.job.job_source import BlobSource
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.contract.spool.segments import BLOBS_NAME
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox

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


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "log"), [(False, LOG), (True, LOG), (False, ".")])
def test_a_root_that_was_moved_away_and_back_has_each_row_once(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any], *, killed: bool, log: str
) -> None:
    root = tmp_path / "db"
    outbox = open_run(root, log)
    put(outbox, *range(5))
    assert outbox.flush(60)
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


@pytest.mark.slow
@pytest.mark.parametrize("log", [LOG, "."])
def test_a_root_that_was_deleted_is_not_waited_for(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any], log: str
) -> None:
    outbox = open_run(tmp_path / "db", log)
    put(outbox, *range(5))
    assert outbox.flush(60)
    delete(tmp_path / "db")
    put(outbox, 5)
    wait_until(lambda: states(agent) == ["removed"], what="a removed run")
    outbox.close("finished", "")
    wait_until(lambda: not os.listdir(agent.places.spool), what="the end of the stream")
    assert not (tmp_path / "db").exists()


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [False, True])
def test_a_run_that_ends_while_its_root_is_away_has_its_end_in_run_json(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any], *, deleted: bool
) -> None:
    """The end alone changes no output."""
    root = tmp_path / "db"
    outbox = open_run(root)
    put(outbox, *range(5))
    assert outbox.flush(60)
    wait_until((root / LOG / "run.json").exists, what="run.json")
    if deleted:
        delete(root)
    else:
        os.rename(root, tmp_path / "away")
    outbox.close("finished", "")
    if deleted:
        wait_until(lambda: states(agent) == ["removed"], what="a removed run")
    else:
        wait_until(lambda: "is not here" in str(agent.status()["problems"]), what="a stream that waits")
        assert os.listdir(agent.places.spool)
        os.rename(tmp_path / "away", root)
    wait_until(lambda: not os.listdir(agent.places.spool), what="the end of the stream")
    if not deleted:
        assert json.loads((root / LOG / "run.json").read_text())["state"] == "finished"


@pytest.mark.slow
def test_an_item_that_is_half_deleted_is_not_made_again(
    agent: Any, open_run: OpenRun, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    root = tmp_path / "db"
    outbox = open_run(root)
    put(outbox, *range(5))
    assert outbox.flush(60)
    os.unlink(root / LOG / "progress.csv")
    put(outbox, 5)
    wait_until(  # the problem is told for half a second: the next commit makes the file anew
        lambda: "progress.csv" in str(agent.status()["problems"]) or (root / LOG / "progress.csv").exists(),
        what=lambda: f"a commit that notices: {os.listdir(root / LOG)}, {agent.status()}",
    )
    delete(root / "log" / "table")
    put(outbox, 6)  # by now the file may have been made anew and stored: nothing else would look again
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
        assert side.stream.state is StreamState.ITEM_MISSED
        assert look_for_item(side.stream, side.files, side.widener)
        assert side.stream.root_away
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


def test_a_rewrite_of_a_root_that_went_away_is_forgotten(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        side.commit()
        lone.row({"late": 2})
        side.read()
        side.serve(hurry=False)
        former = {output for output in side.stream.outputs if output.state is OutputState.REWRITING}
        assert former, "a rewrite is under way"
        wait(side.widener._running.values())
        lone.root.rename(tmp_path / "away")
        side.stream.handle(StreamEvent.MISSED)
        assert look_for_item(side.stream, side.files, side.widener)
        (tmp_path / "away").rename(lone.root)
        side.come_back()
        side.settle()
        assert not former & set(side.widener._running)
    assert (lone.root / "progress.csv").read_text().splitlines()[0].startswith("seq,")
    assert [name for name in os.listdir(lone.root) if name.startswith(".rla-tmp-")] == []


def test_an_item_that_was_missed_for_a_moment_goes_on(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        side.stream.handle(StreamEvent.MISSED)  # its folder was looked for between two renames
        assert look_for_item(side.stream, side.files, side.widener)
        record = follow(side.stream, new_run_record(side.stream), time.time(), 60.0)
        assert record.rows == 0, "an agent that is killed now counts them again"
        side.come_back()
        lone.row({"v": 2})
        side.read_all()
        assert side.stream.drain_new().rows == 2, "rows that the run's record counts twice"
        side.commit()
    assert (lone.root / "progress.csv").read_text().count("\n") == 3


def test_jobs_wait_for_the_root_too(tmp_path: Path) -> None:
    done: list[object] = []
    kinds = {"kind": JobKind(lambda fields, _context: done.append(fields), media=False)}
    with Side(LoneStream(tmp_path)) as side, ThreadPoolExecutor(1) as pool:
        stream = side.stream
        desk = JobQueue(
            pool, pool, Places(tmp_path / "state", tmp_path / "runtime"), kinds, lambda: None, lambda *_: ""
        )
        desk.add_changes([job(stream, "kind", {})], CommitChanges())
        stream.handle(StreamEvent.ROOT_AWAY, "away")
        desk.start(lambda _: job_context(stream))
        pool.submit(int).result()
        assert done == []
        assert desk.pending(stream.name, media=True)
        stream.handle(StreamEvent.ROOT_FOUND)
        desk.start(lambda _: job_context(stream))
        pool.submit(int).result()
        assert done == [{}]


def job(stream: Stream, kind: str, fields: dict[str, Any]) -> JobRow:
    return JobRow(stream.name, Position(1, 1), kind, pack(fields))


def test_a_job_that_meets_no_root_has_its_stream_wait(tmp_path: Path) -> None:
    """Nothing but the job came, so no output has met it."""
    lone = LoneStream(tmp_path)
    done: list[bool] = []
    kinds = {"kind": JobKind(lambda _fields, context: done.append(context.removed), media=False)}
    with Side(lone) as side, ThreadPoolExecutor(1) as pool:
        stream = side.stream
        side.commit()
        desk = JobQueue(
            pool, pool, Places(tmp_path / "state", tmp_path / "runtime"), kinds, lambda: None, lambda *_: ""
        )
        desk.add_changes([job(stream, "kind", {})], CommitChanges())
        lone.root.rename(tmp_path / "away")
        desk.start(lambda _: job_context(stream))
        assert look_for_item(stream, side.files, side.widener)
        desk.start(lambda _: job_context(stream))
        pool.submit(int).result()
        assert done == []
        assert "is not here" in stream.parked
        (tmp_path / "away").rename(lone.root)
        side.come_back()
        desk.start(lambda _: job_context(stream))
        pool.submit(int).result()
        assert done == [False]


def test_a_root_that_was_mounted_anew_is_not_away(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    told = Stream(lone.writer.name, lone.writer.folder).opening
    opening = told._replace(root_device=1, opened=time.time())
    assert not same_root(opening)
    assert not root_is_away(opening)
    lone.root.rename(tmp_path / "away")
    assert root_is_away(opening)


def test_a_root_that_goes_while_a_job_runs_costs_no_checkpoint(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path, {"log": ".", "checkpoint": "."})
    stream = Stream(lone.writer.name, lone.writer.folder)
    blobs = stream.folder / BLOBS_NAME
    blobs.mkdir()
    (blobs / "kept").write_bytes(b"x")
    source = BlobSource("kept", 1)
    fields = CheckpointJob(Stamp("0" * 16, 1, "r", "model", 1, {}), source, Retention()).encode()
    row = job(stream, CHECKPOINT_KIND, fields)
    context = JobContext(stream.opening, blobs)
    lone.root.rename(tmp_path / "away")
    with pytest.raises(RetryLaterError, match="is not here"):
        run_job(KINDS, row, context)
    assert (blobs / "kept").exists()
    with pytest.raises(RlaError, match="is gone"):  # a root that was deleted is not waited for
        run_job(KINDS, row, replace(context, removed=True))
    assert not (blobs / "kept").exists()


CHECKPOINTS = """
import os, sys
from pathlib import Path
from rla_client import exp_manager, logger, time_step_holder
base = Path(sys.argv[1])
config = {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': []}}
exp_manager.configure('t', config, str(base / 'data'), code_root=str(base))
exp_manager.log_files_gen()
exp_manager.save_checkpoint({'step': 1})
assert logger.flush(60)
os.rename(base / 'data', base / 'away')
time_step_holder.set_time(2)
exp_manager.save_checkpoint({'step': 2})
print('flush', logger.flush(3), flush=True)
input()
print('flush', logger.flush(60), flush=True)
"""


def answer(lines: IO[str]) -> str:
    """What `flush` said; a run prints where it lies, too."""
    return next(line for line in lines if line.startswith("flush ")).split()[1]


@pytest.mark.slow
def test_a_checkpoint_while_the_root_is_away_is_kept(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    base = tmp_path / "project"
    base.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", CHECKPOINTS, str(base)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=base,
    ) as training:
        assert training.stdin is not None
        assert training.stdout is not None
        assert answer(training.stdout) == "False", "nothing is durable while the root is away"
        wait_until(lambda: "is not here" in str(agent.status()["problems"]), what="a waiting stream")
        (base / "away").rename(base / "data")
        training.stdin.write("\n")
        training.stdin.flush()
        assert answer(training.stdout) == "True"
        training.stdin.close()
    found = sorted(path.name for path in (base / "data" / "checkpoint").rglob("*.pt"))
    assert [name.rpartition("_")[2] for name in found] == ["0.pt", "2.pt"]
