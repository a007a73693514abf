"""Where the ranks of a job meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.spooled import bare_opening, stop_autostart

from rla_client.contract.agent.places import Places
from rla_client.run import rank_meeting
from rla_client.run.open_stream import process_began


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*rank_meeting.JOB_VARIABLES, "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rank_meeting, "_opened", {})


def test_outside_of_a_job_nothing_is_published(tmp_path: Path) -> None:
    assert rank_meeting.job_file(str(tmp_path), "t", 1) is None
    rank_meeting.publish(str(tmp_path), "t", None, ())
    assert list(tmp_path.iterdir()) == []


def test_ranks_find_rank_zero_and_each_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("WORLD_SIZE", "2")
    began = time.time()
    first, second = (rank_meeting.job_file(str(tmp_path), "t", number) for number in (1, 2))
    assert rank_meeting.read_published(first, began) is None
    rank_meeting.publish(str(tmp_path), "t", bare_opening(run="a"), ("csv",))
    rank_meeting.publish(str(tmp_path), "t", bare_opening(run="b"), ("csv",))
    runs = [(rank_meeting.read_published(path, began) or {})["opening"]["run"] for path in (first, second)]
    assert runs == ["a", "b"]
    assert rank_meeting.job_file(str(tmp_path), "other", 1) != first
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert rank_meeting.job_file(str(tmp_path), "t", 1) != first


def test_a_job_of_one_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    rank_meeting.publish(str(tmp_path), "t", None, ())
    assert list(tmp_path.iterdir()) == []


def test_old_descriptions_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"opening": {}, "time": time.time() - 2 * rank_meeting.FRESH_S}))
    assert rank_meeting.read_published(path, time.time()) is None
    path.write_text("{half")
    assert rank_meeting.read_published(path, time.time()) is None


def tell(root: Path, *, ago_s: float, pid: int = 0, host: str = "", **run: object) -> rank_meeting.Meeting:
    """What rank 0 told of a run so long before this process began; and its run.json, if there is one."""
    job = rank_meeting.job_file(str(root), "t", 1)
    assert job is not None
    index = "2026/11/29/09-30-01-123456_10.0.0.5_&"
    opening = bare_opening(str(root), table="t", index=index, run="a" * 32, epoch=5, pid=pid, host=host)
    job.parent.mkdir(exist_ok=True)
    told = {"opening": opening.to_fields(), "time": process_began - ago_s}
    job.write_text(json.dumps(told))
    folder = root / "log" / "t" / index
    folder.mkdir(parents=True, exist_ok=True)
    if run:
        (folder / "run.json").write_text(json.dumps({"run_id": "a" * 32, "epoch": 5, **run}))
    return rank_meeting.Meeting("key", job)


GONE, LIVING, FAR = (2**30, os.uname().nodename), (os.getpid(), os.uname().nodename), (1, "other")
AN_HOUR, A_MOMENT = 3600.0, 5.0


@pytest.mark.parametrize(
    ("ago_s", "writer", "run", "joined"),
    [
        (-A_MOMENT, GONE, {"state": "finished", "closed": -9.0}, True),  # opened after this process began
        (A_MOMENT, LIVING, {}, True),  # no agent has looked at it yet
        (A_MOMENT, GONE, {}, False),
        (A_MOMENT, GONE, {"state": "finished", "closed": 9.0}, True),  # it was quicker
        (A_MOMENT, GONE, {"state": "finished", "closed": -1.0}, False),
        (A_MOMENT, GONE, {"state": "running", "updated": 9.0}, False),  # killed, which nobody has seen yet
        (A_MOMENT, FAR, {"state": "running", "updated": -1.0}, True),
        (A_MOMENT, FAR, {"state": "running", "epoch": 6}, False),  # it was opened once more since
        (AN_HOUR, FAR, {}, False),
        (AN_HOUR, FAR, {"state": "killed", "closed": 9.0}, False),
        (AN_HOUR, FAR, {"state": "running", "updated": -1.0}, False),  # nobody has heard of it since
        (AN_HOUR, FAR, {"state": "running", "updated": 1.0}, True),  # a rank that comes late
    ],
)
def test_no_rank_joins_the_run_of_a_former_job_of_the_same_name(
    tmp_path: Path, ago_s: float, writer: tuple[int, str], run: dict[str, object], joined: bool
) -> None:
    moments = {name: process_began + float(str(run[name])) for name in ("closed", "updated") if name in run}
    with pytest.MonkeyPatch.context() as job:
        for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}.items():
            job.setenv(name, value)
        place = tell(tmp_path, ago_s=ago_s, pid=writer[0], host=writer[1], **(run | moments))
        assert (place.read(time.time()) is not None) == joined


def test_on_one_machine_the_launcher_tells_jobs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    here = rank_meeting.job_file(str(tmp_path), "t", 1)
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert rank_meeting.job_file(str(tmp_path), "t", 1) != here
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    over_machines = rank_meeting.job_file(str(tmp_path), "t", 1)
    monkeypatch.undo()
    assert over_machines is not None


def meeting(root: Path) -> rank_meeting.Meeting:
    found = rank_meeting.meeting_of(str(root), "t", 1)
    assert found is not None
    return found


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_NODEID", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_PORT", "29500")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1", os.uname().nodename])
def test_on_one_machine_ranks_may_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    assert meeting(tmp_path).why_apart(str(tmp_path)) == ""


@pytest.mark.usefixtures("here")
def test_a_rank_knows_when_nothing_can_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torchrun" in rank_meeting.Meeting("", None).why_apart(str(tmp_path))
    place = meeting(tmp_path)
    assert place.path is not None
    for name, value in {"MASTER_ADDR": "192.0.2.7", "SLURM_NODEID": "1"}.items():
        with monkeypatch.context() as one:
            one.setenv(name, value)
            assert f"{name}={value}" in place.why_apart(str(tmp_path))
            one.setattr(rank_meeting, "network_file_system", lambda _path: "NFS")
            assert place.why_apart(str(tmp_path)) == ""
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.7")
    place.path.parent.mkdir()
    place.path.touch()
    assert place.why_apart(str(tmp_path)) == "", "rank 0's run is seen"


ALONE = """
import sys, time
from rla_client import exp_manager, logger
exp_manager.configure("t", {"LOG_USED": ["csv"]}, sys.argv[1], code_root=sys.argv[1], **eval(sys.argv[2]))
exp_manager.set_hyper_param(lr=1)
exp_manager.log_files_gen(all_ranks=True)
logger.record_tabular("x", 1)
logger.dump_tabular()
"""


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [{}, {"run_id": "one", "resume": "allow"}])
@pytest.mark.parametrize("job", [{}, {"MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "29500"}])
def test_a_rank_that_cannot_join_says_so_at_once(
    tmp_path: Path, job: dict[str, str], resumed: dict[str, str]
) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path), repr(resumed)],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "RANK": "1", **job},
    )  # fmt: skip
    assert time.monotonic() - began < 30
    assert "rank 1 cannot join the run of rank 0" in done.stderr
    assert ("MASTER_ADDR=192.0.2.7" if job else "torchrun") in done.stderr
    assert done.returncode == (0 if job else 1), "what could never be kept is an error"


AHEAD = """
import sys, time
from rla_client import exp_manager, logger
config = {"LOG_USED": ["csv"], "AGENT": {"exit_wait_s": 0.5}}
exp_manager.configure("t", config, sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen(all_ranks=True)
logger.record_tabular("x", 1)
logger.dump_tabular()
began = time.monotonic()
exp_manager.close()
print(time.monotonic() - began)
"""


def test_a_rank_that_ends_first_waits_as_long_as_every_exit(tmp_path: Path, places: Places) -> None:
    stop_autostart(places)
    job = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    done = subprocess.run(
        [sys.executable, "-c", AHEAD, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", **job},
    )  # fmt: skip
    assert 0.5 <= float(done.stdout.splitlines()[-1]) < 8, done.stderr
    assert "rank 0 opened no run to join" in done.stderr
