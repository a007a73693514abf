"""What commit e3eba59 left behind is taken over: rows in the spool, agent.db, the ledger, the data root.

`data/e3eba59.tar.xz` was written by that commit's own client and agent (`make.sh` in it): of one run all was
stored and copied to the master; of two the agent was killed after 40 and 35 rows, and the rest waits in the
spool. Rows name their data root with its inode, so the paths, the inode and the ledger's stamps are set to
where the files lie now; nothing else is changed.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.replication_lab import tree
from support.waiting import DEADLINE_S

from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import OpeningFrame
from rla_agent.replicate.ledger_schema import STEPS as LEDGER_STEPS
from rla_agent.store.agent_db import STEPS
from rla_client import database
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import stream_names

ARCHIVE = Path(__file__).with_name("data") / "e3eba59.tar.xz"
OLD = "/tmp/rla-old-00000000"
ROWS = {"whole": 50, "finished": 60, "killed": 55}


@dataclass
class Left:
    """Folders of the earlier release, where they lie now."""

    base: Path
    places: Places

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def master(self) -> Path:
        return self.base / "master"

    def log(self, name: str, root: Path | None = None) -> Path:
        (found,) = (root or self.data).glob(f"log/old/*/*/*/*name={name}")
        return found

    def state(self, name: str) -> str:
        return str(json.loads((self.log(name) / "run.json").read_bytes())["state"])


@pytest.fixture
def left(places: Places, tmp_path: Path) -> Iterator[Left]:
    """The archive, unpacked beside this test's state folder and not touched by any agent yet."""
    base = Path(tempfile.mkdtemp(prefix=OLD[5:13], dir="/tmp"))  # paths keep their length, so segments theirs
    assert len(str(base)) == len(OLD)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(base, filter="tar")
    shutil.rmtree(places.state)
    shutil.move(base / "state", places.state)
    found = Left(base, places)
    for path in (places.state / "replicate" / "databases.json", base / "code" / "rla_config.yaml"):
        path.write_text(path.read_text().replace(OLD, str(base)))
    for segment in places.spool.glob("*/*.seg"):
        settle_segment(segment, found)
    settle_databases(found)
    yield found
    shutil.rmtree(base, ignore_errors=True)  # an agent may still send its files


def settle_segment(path: Path, left: Left) -> None:
    """Name the data root where it lies now in a segment's opening frame, in as many bytes."""
    data = path.read_bytes()
    first = parse(data, 1, 0, final=True).records[0]
    assert isinstance(first.content, OpeningFrame)
    fields, there = first.content.fields, os.stat(left.data)
    changed = {
        **fields, "root": str(left.data), "config": fields["config"].replace(OLD, str(left.base)),
        "root_device": there.st_dev, "root_inode": there.st_ino,
    }  # fmt: skip
    spare = first.end - len(encode_frame(FrameKind.OPEN, pack(changed)))
    python = changed["python"]  # no job waits that would start it
    changed["python"] = python + "x" * spare if spare >= 0 else python[:spare]
    opening = encode_frame(FrameKind.OPEN, pack(changed))
    assert len(opening) == first.end
    path.write_bytes(opening + data[first.end :])


def settle_databases(left: Left) -> None:
    """Put today's paths into agent.db, and into the ledger the stamps of the files that it knows."""
    with closing(sqlite3.connect(left.places.state / "agent.db")) as db, db:
        db.execute("UPDATE outputs SET path = replace(path, ?, ?)", (OLD, str(left.base)))
        db.execute("UPDATE runs SET data = replace(data, ?, ?)", (OLD, str(left.base)))
    ledger = left.places.state / "replicate" / "ledger.db"
    with closing(sqlite3.connect(ledger)) as db, db:
        target = f"folder:{left.master}"
        db.execute("UPDATE databases SET root = ?, target = ?", (os.fsencode(left.data), target))
        for folder, name in json.loads((left.base / "seen.json").read_text()):
            found = os.stat(left.data / folder / name)
            db.execute(
                "UPDATE files SET ino = ?, mtime_ns = ?, ctime_ns = ? WHERE name = ? "
                "AND folder = (SELECT id FROM folders WHERE path = ?)",
                (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, os.fsencode(name), os.fsencode(folder)),
            )


def steps_of(path: Path) -> list[int]:
    with path.open(newline="") as file:
        return [int(row["time-step"]) for row in csv.DictReader(file)]


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of each file's content: both stay only where nothing was sent."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def take_over(left: Left, agent: Any, wait_until: Callable[..., Any]) -> None:
    agent.start()
    wait_until(lambda: left.state("finished") == "finished" and left.state("killed") == "killed")
    wait_until(lambda: not stream_names(left.places.spool), what="an empty spool")


def test_all_is_as_it_was_left(left: Left) -> None:
    assert steps_of(left.log("finished") / "progress.csv") == list(range(40))
    assert steps_of(left.log("killed") / "progress.csv") == list(range(35))
    assert [left.state(name) for name in ROWS] == ["finished", "running", "running"]
    for path in (left.places.state / "agent.db", left.places.state / "replicate" / "ledger.db"):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (0,)


@pytest.mark.slow
def test_the_rest_is_written_once_and_all_is_read(
    left: Left, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    whole = tree(left.log("whole"))
    agent = new_agent()
    take_over(left, agent, wait_until)
    assert agent.status()["problems"] == []
    assert agent.stop() == 0
    assert tree(left.log("whole")) == whole
    for name, count in ROWS.items():
        folder = left.log(name)
        assert steps_of(folder / "progress.csv") == list(range(count))
        lines = (folder / "progress.json").read_text().splitlines()
        assert [json.loads(line)["time-step"] for line in lines] == list(range(count))
        texts = (folder / "log.txt").read_text()
        assert texts.count("the last line") == 1
        assert texts.count("| perf/return | ") == count
        assert json.loads((folder / "run.json").read_bytes())["rows"] == count
    with closing(sqlite3.connect(left.places.state / "agent.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        assert db.execute("SELECT count(*) FROM outputs").fetchone() == (0,)
    opened = database.open(left.data)
    runs = {name: opened.find(f"name={name}") for name in ROWS}
    assert {name: run.state for name, run in runs.items()} == {
        "whole": "finished", "finished": "finished", "killed": "killed",
    }  # fmt: skip
    for name, run in runs.items():
        frame = run.scalars()
        assert frame["perf/return"].tolist() == list(range(ROWS[name]))
        assert frame["late"].dropna().tolist() == [2.0 * step for step in range(30, ROWS[name])]
        assert [path.name for path in run.checkpoints] == ["checkpoint_20.pt"]


@pytest.mark.parametrize("command", [("ls", "--json"), ("show", "name=killed"), ("metrics", "name=finished")])
def test_the_commands_read_it(left: Left, command: tuple[str, ...]) -> None:
    """Also before an agent took it over."""
    done = subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", *command, "--data-root", str(left.data)],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S * 10,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if command[0] == "ls":
        assert sorted(run["step"] for run in json.loads(done.stdout)) == [34, 39, 49]
    else:
        assert "perf/return" in done.stdout


@pytest.mark.slow
def test_the_ledger_goes_on_without_sending_again(
    left: Left, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    there = left.log("whole", left.master)
    sent = stamps(there)
    grown = left.log("finished", left.master) / "progress.csv"
    take_over(left, new_agent(), wait_until)
    wait_until(lambda: steps_of(grown) == list(range(60)), what="the new rows on the master")

    def differences() -> list[str]:
        here, copied = (
            tree(left.data, skip=(".rla", ".objects")),
            tree(left.master, skip=(".rla", ".objects")),
        )
        names = here.keys() | copied.keys()
        return [name for name in names if here.get(name) != copied.get(name) and "SHA256SUMS" not in name]

    wait_until(lambda: not differences(), what=lambda: f"equal trees: {differences()}")
    assert {name: stamp for name, stamp in stamps(there).items() if name in sent} == sent
    with closing(sqlite3.connect(left.places.state / "replicate" / "ledger.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(LEDGER_STEPS),)


RESUME = """
import sys
import torch
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure(
    "old", rla_config=sys.argv[2], data_root=sys.argv[1], run_id="killed", resume="must",
)
exp_manager.set_hyper_param(lr=0.1, name="killed")
exp_manager.add_record_param(["name"])
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
step, content = exp_manager.load_checkpoint()
assert step == 20 and content["w"].tolist() == [0, 1, 2, 3], (step, content)
for step in range(21, 65):
    time_step_holder.set_time(step)
    logger.record_tabular("perf/return", float(step))
    logger.dump_tabular()
assert logger.flush(60)
"""


@pytest.mark.slow
def test_its_killed_run_is_resumed_at_its_checkpoint(
    left: Left, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    pytest.importorskip("torch")
    take_over(left, new_agent(), wait_until)
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(left.data), str(left.base / "code" / "rla_config.yaml")],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S * 10, cwd=left.base / "code",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wait_until(lambda: left.state("killed") == "finished")
    assert steps_of(left.log("killed") / "progress.csv") == list(range(65))
