"""docs/how-to/clusters.md, played: Slurm's kill and requeue, containers, many runs, homes on NFS.

No scheduler and no container runtime is needed: what they do to processes is done here with the same
system calls. "The job" is every process that came of its command, as in a cgroup.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import TIME_FACTOR

from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places
from rla_client.contract.spool.segments import stream_names

PAGES = ("clusters.md", "docker.md")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clusters.md"
JOB_VARIABLE = "RLA_TEST_JOB"
STEPS = 400
PAUSE_S = 0.02
ENDED_S = 60 * TIME_FACTOR
TRAINING = f"""
import os, random, signal, sys, time
import numpy as np
from rla_client import exp_manager, logger, time_step_holder
root, pause, hold = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
if os.environ.get("IGNORE_TERM"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
np.random.seed(1)
exp_manager.configure("table", rla_config={{"LOG_USED": ["csv"]}}, data_root=root, code_root=root)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
start, total = 0, 0.0
if exp_manager.resumed_from is not None:
    start, content = exp_manager.load_checkpoint()
    total = content["total"]
print("begins at", start, flush=True)
for step in range(start + 1, {STEPS} + 1):
    time_step_holder.set_time(step)
    total += float(np.random.rand())
    logger.record_tabular("total", total)
    logger.dump_tabular()
    if step % 40 == 0:
        exp_manager.save_checkpoint({{"total": total}})
        print("saved", step, flush=True)
    time.sleep(3600 if step == hold else pause)  # until a signal comes: a job to be killed is never over
"""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount"
)


def python(*words: str, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the interpreter to its end, `under` another program if given."""
    command = [*under, sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENDED_S)


class Job:
    """A command and all processes that come of it, wherever they move themselves to."""

    def __init__(self, command: list[str], output: Path, environment: Mapping[str, str]) -> None:
        self.marker = f"{output}-{time.monotonic_ns()}"
        self.output = output
        with output.open("ab") as stream:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
                env={**os.environ, **environment, JOB_VARIABLE: self.marker},
            )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        """As the job's cgroup would list them: those that carry its marker, and their children."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get(JOB_VARIABLE) == self.marker or self._ours(process)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _ours(self, process: psutil.Process) -> bool:
        """The agent starts with a clean environment: it is known by its runtime folder."""
        mine = os.environ[RUNTIME_VARIABLE]
        return process.pid != os.getpid() and process.environ().get(RUNTIME_VARIABLE, "") == mine

    def signal_all(self, number: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL until nothing is left, as the end of a cgroup."""
        while self.processes():
            self.signal_all(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        self.process.wait()

    @property
    def said(self) -> str:
        return self.output.read_text()


@pytest.fixture
def submit(tmp_path: Path, places: Places) -> Iterator[Callable[..., Job]]:
    """`submit(hold, **environment)`: the batch script's one line, started as Slurm would; 0: to its end."""
    jobs: list[Job] = []
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "data").mkdir()

    def start(hold: int, **environment: str) -> Job:
        command = [sys.executable, "-m", "rla_agent", "run", "--", sys.executable, str(tmp_path / "train.py")]
        command += [str(tmp_path / "data"), str(PAUSE_S if hold else 0.0), str(hold)]
        slurm = {"SLURM_JOB_ID": "4711", "RLA_RUN_ID": "4711", "RLA_RESUME": "allow"}
        jobs.append(Job(command, tmp_path / f"job-{len(jobs)}.out", {**slurm, **environment}))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
    del places


def curve(root: Path) -> list[tuple[int, float]]:
    """Time-steps and values of the one run of a database."""
    (path,) = root.glob("log/table/*/*/*/*/progress.csv")
    with path.open() as file:
        return [(int(row["time-step"]), float(row["total"])) for row in csv.DictReader(file)]


def expected_curve() -> list[tuple[int, float]]:
    """What a run without interruption writes."""
    import numpy as np

    generator = np.random.RandomState(1)
    total, rows = 0.0, []
    for step in range(1, STEPS + 1):
        total += float(generator.rand())
        rows.append((step, total))
    return rows


def run_file(root: Path) -> dict[str, Any]:
    (path,) = root.glob("log/table/*/*/*/*/run.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def has_ended(root: Path, state: str) -> bool:
    """Whether there is a run.json yet, and it says so."""
    return bool(list(root.glob("log/table/*/*/*/*/run.json"))) and run_file(root)["state"] == state


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("term then kill", marks=pytest.mark.further), "kill"])
def test_a_requeued_job_goes_on(
    submit: Callable[..., Job], tmp_path: Path, wait_until: Callable[..., Any], kind: str
) -> None:
    """All processes are killed twice, agent included; the same command goes on: one run, the same curve."""
    for checkpoint in (80, 200):
        job = submit(checkpoint + 50, IGNORE_TERM="1")
        said = f"saved {checkpoint}"
        wait_until(lambda job=job, said=said: said in job.said, 60, job.output.read_text)
        if kind == "term then kill":
            job.signal_all(signal.SIGTERM)
        job.kill()
    last = submit(0)
    assert last.process.wait(ENDED_S) == 0, last.said
    begin = int(re.findall(r"begins at (\d+)", last.said)[0])
    assert begin >= 200, "it did not begin anew"
    assert curve(tmp_path / "data") == expected_curve()
    assert run_file(tmp_path / "data")["state"] == "finished"


@pytest.mark.slow
def test_a_job_that_is_told_in_time_loses_nothing(
    submit: Callable[..., Job], tmp_path: Path, wait_until: Callable[..., Any], places: Places
) -> None:
    """`--signal=TERM`: rla-agent run passes it on, writes what there is, and ends with 143."""
    job = submit(130)
    wait_until(lambda: "saved 80" in job.said, 60)
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(ENDED_S) == 143
    rows = curve(tmp_path / "data")
    assert rows == expected_curve()[: len(rows)]
    assert len(rows) >= 80
    assert stream_names(places.spool) == []
    found = run_file(tmp_path / "data")
    assert (found["state"], found["signal"]) == ("killed", signal.SIGTERM)
    wait_until(lambda: job.processes() == [], what="the agent ends with the job")


@pytest.mark.slow
def test_a_job_that_is_requeued_on_another_node(
    submit: Callable[..., Job], tmp_path: Path, wait_until: Callable[..., Any], places: Places,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The first node keeps a spool of its own; what is left there is taken in later and harms nothing."""
    job = submit(170, IGNORE_TERM="1")
    wait_until(lambda: "saved 120" in job.said, 60)
    job.kill()
    other = Places(tmp_path / "state-of-node-2", places.runtime / "node-2")
    monkeypatch.setenv(STATE_VARIABLE, str(other.state))
    monkeypatch.setenv(RUNTIME_VARIABLE, str(other.runtime))
    last = submit(0)
    assert last.process.wait(ENDED_S) == 0, last.said
    assert curve(tmp_path / "data") == expected_curve()
    monkeypatch.setenv(STATE_VARIABLE, str(places.state))
    monkeypatch.setenv(RUNTIME_VARIABLE, str(places.runtime))
    drained = python("-m", "rla_agent", "drain")
    assert curve(tmp_path / "data") == expected_curve(), drained
    assert run_file(tmp_path / "data")["state"] == "finished", drained
    (left,) = tmp_path.glob("data/log/table/*/*/*/*/abandoned-????????/progress.csv")
    with left.open() as file:
        steps = [int(row["time-step"]) for row in csv.DictReader(file)]
    assert steps == list(range(1, len(steps) + 1)), "what the first node still had, once"
    assert len(steps) >= 120
    assert stream_names(places.spool) == []


@pytest.mark.slow
def test_two_jobs_that_share_an_agent(
    submit: Callable[..., Job], tmp_path: Path, wait_until: Callable[..., Any], places: Places
) -> None:
    """The first job's end takes the agent away; the second one's starts another."""
    first = submit(0, RLA_RUN_ID="1")
    wait_until(lambda: "begins at 0" in first.said, 30)
    second = submit(STEPS + 1, RLA_RUN_ID="2")  # goes on for some seconds after the first one
    wait_until(lambda: "begins at 0" in second.said, 30)
    assert first.process.wait(ENDED_S) == 0, first.said
    paths = wait_until(lambda: list(tmp_path.glob("data/log/table/*/*/*/*/run.json")))

    def of_second() -> dict[str, Any]:
        found = [json.loads(path.read_text()) for path in tmp_path.glob("data/log/table/*/*/*/*/run.json")]
        return next((one for one in found if one["run_key"] == "2"), {})

    def goes_on() -> bool:
        state = of_second().get("state")
        return state == "finished" or (state == "running" and agent_alive(places))

    wait_until(goes_on, 30)
    assert second.process.wait(ENDED_S) == 0, second.said
    wait_until(lambda: second.processes() == [], what="the agent ends with the job")
    assert of_second()["state"] == "finished"
    assert stream_names(places.spool) == []
    assert paths


def container(folder: Path, inside: str, *writable: Path) -> list[str]:
    """`inside` as process 1 of its own pid namespace: / read-only, 64 MB of /dev/shm, some folders writable.

    Args:
        folder: for the script.
        inside: shell text that ends in `exec …`.
        writable: bind-mounted, as `docker run -v`.
    """
    mounts = "\n".join(f"mount --bind {path} {path}" for path in writable)
    script = folder / "container.sh"
    script.write_text(f"""set -e
{mounts}
mount -t tmpfs -o size=64m none /dev/shm
mount -o remount,ro,bind /
export TMPDIR=/dev/shm
{inside}
""")
    return ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", "sh", str(script)]


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """/ itself as a mount point of its own, so that it alone can be made read-only; the data root."""
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.slow
@pytest.mark.root
@needs_root
@pytest.mark.parametrize("ends", ["by itself", "by SIGKILL"])
def test_a_container_whose_spool_is_the_hosts(
    agent: Any, mounted: Path, tmp_path: Path, places: Places, wait_until: Callable[..., Any], ends: str
) -> None:
    """The host's agent serves a training process in another pid namespace with a read-only /."""
    pace = "0 0" if ends == "by itself" else f"{PAUSE_S} 90"
    inside = (
        f"touch /read-only 2>/dev/null && exit 9\nexec {sys.executable} {tmp_path}/train.py {mounted} {pace}"
    )
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(
            container(tmp_path, inside, places.state, places.runtime, mounted), stdout=output, stderr=output
        )
    if ends == "by itself":
        assert process.wait(ENDED_S) == 0, (tmp_path / "out").read_text()
        wait_until(lambda: has_ended(mounted, "finished"))
        assert curve(mounted) == expected_curve()
    else:
        wait_until(lambda: "saved 40" in (tmp_path / "out").read_text(), 60)
        process.kill()
        process.wait()
        wait_until(lambda: has_ended(mounted, "killed"), what="the agent sees its lock go")
        wait_until(lambda: stream_names(places.spool) == [])
        rows = curve(mounted)
        assert rows == expected_curve()[: len(rows)]
        assert len(rows) >= 40
    wait_until(lambda: stream_names(places.spool) == [])
    saved = int(re.findall(r"saved (\d+)", (tmp_path / "out").read_text())[-1])
    there = [path.name for path in mounted.glob("checkpoint/table/*/*/*/*/checkpoint_*.pt")]
    assert f"checkpoint_{saved}.pt" in there, "its shared memory is not the host's"
    agent.stop()


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.root
@needs_root
def test_a_container_with_an_agent_of_its_own(
    mounted: Path, tmp_path: Path, places: Places, wait_until: Callable[..., Any]
) -> None:
    """`rla-agent run` as process 1; `docker stop` sends SIGTERM: all rows are on the data root after it."""
    environment = f"{STATE_VARIABLE}=/run/rla {RUNTIME_VARIABLE}=/run/rla-sockets"
    run = f"{sys.executable} -m rla_agent run -- {sys.executable} {tmp_path}/train.py {mounted} {PAUSE_S} 130"
    inside = f"mount -t tmpfs none /run\nexec env {environment} RLA_RUN_ID=job RLA_RESUME=allow {run}"
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(container(tmp_path, inside, mounted), stdout=output, stderr=output)
    wait_until(lambda: "saved 80" in (tmp_path / "out").read_text(), 60, (tmp_path / "out").read_text)
    (inner,) = psutil.Process(process.pid).children()
    inner.send_signal(signal.SIGTERM)
    assert process.wait(ENDED_S) == 143, (tmp_path / "out").read_text()
    rows = curve(mounted)
    assert rows == expected_curve()[: len(rows)]
    assert len(rows) >= 80
    assert (run_file(mounted)["state"], run_file(mounted)["signal"]) == ("killed", signal.SIGTERM)
    with (tmp_path / "out").open("wb") as output:  # started anew, as by --restart or the next job
        again = inside.replace(f" {PAUSE_S} 130", " 0 0")
        process = subprocess.Popen(container(tmp_path, again, mounted), stdout=output, stderr=output)
    assert process.wait(ENDED_S) == 0, (tmp_path / "out").read_text()
    assert curve(mounted) == expected_curve()
    del places


@pytest.mark.further
@pytest.mark.slow
def test_many_runs_with_few_files(
    places: Places, tmp_path: Path, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    """An agent that may open 128 files serves 24 runs at a time, each with three outputs."""
    (tmp_path / "train.py").write_text(TRAINING.replace("if step % 40 == 0:", "if step < 0:"))
    (tmp_path / "data").mkdir()
    config = tmp_path / "own.yaml"
    config.write_text("AGENT: {open_files_max: 16}\n")
    agent = new_agent("--config", str(config)).start()
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (128, 128))
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "data"), "0", "0"]
    runs = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(24)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=ENDED_S)
        assert run.returncode == 0, errors
    wait_until(lambda: stream_names(places.spool) == [], 60)
    tables = list(tmp_path.glob("data/log/table/*/*/*/*/progress.csv"))
    assert len(tables) == 24
    assert {len(path.read_text().splitlines()) for path in tables} == {STEPS + 1}
    assert agent.status()["open_files"] <= 16


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace to say that a disk is NFS")
def test_a_home_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """statfs says NFS: the default state goes to /var/tmp, one that was chosen there is refused."""
    as_nfs = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=statfs"]
    as_nfs += ["-e", "inject=statfs:poke_exit=@arg2=6969000000000000"]
    where = "from rla_client.contract.agent.places import find_places; print(find_places().state)"
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    probe = python("-c", where, under=as_nfs)
    if "INJECTED: args" not in (tmp_path / "trace").read_text():
        pytest.skip("this strace cannot change what statfs answers")
    assert probe.stdout.startswith(f"/var/tmp/rla-agent-{os.getuid()}/"), probe
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "home" / "state"))
    started = python("-m", "rla_agent", "start", "--detach", under=as_nfs)
    assert started.returncode == 4
    assert "is on NFS" in started.stderr
    assert f"set {STATE_VARIABLE} to a folder on a local disk" in started.stderr
    doctor = python("-m", "rla_agent", "doctor", under=as_nfs)
    assert "state-network" in doctor.stdout or "is on NFS" in doctor.stdout
    monkeypatch.delenv(STATE_VARIABLE)
    assert python("-c", where).stdout.startswith(str(tmp_path / "home")), "a local home is used"


def test_the_document_shows_what_is_tested() -> None:
    text = "".join(DOCUMENT.with_name(name).read_text(encoding="utf-8") for name in PAGES)
    for part in (
        "#SBATCH --requeue", 'RLA_RUN_ID="$SLURM_JOB_ID"', "RLA_RESUME=allow", "rla-agent run -- ",
        "--shm-size",
        "RLA_STATE_DIR", "RLA_RUNTIME_DIR", "open_files_max", "ulimit -n", "/var/tmp/rla-agent-",
    ):  # fmt: skip
        assert part in text, part
