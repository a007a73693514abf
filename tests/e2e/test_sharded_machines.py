"""Sharded checkpoints of two machines that share torch's store and the master, and no folder.

In each save all tensors hold one number, the time-step: whatever loads must hold one number, too.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine
from support.ports import free_port
from support.replication_lab import Sshd
from support.waiting import TIME_FACTOR, wait_until

from rla_client.contract.agent.places import Places
from rla_client.contract.sharded_checkpoint.check import shard_problems
from rla_client.contract.sharded_checkpoint.folder import read_whole, waiting_parts

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TRAINING = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
torch.set_num_threads(1)
count, what = int(sys.argv[1]), sys.argv[2:]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
from rla_client import exp_manager, time_step_holder
from rla_client.integrations.dcp import RLAStorageReader
mesh = init_device_mesh("cpu", (world,))
def state(value):
    sharded = torch.full((7, 3), float(value))
    return {"model": {"a": distribute_tensor(sharded, mesh, [Shard(0)]),
                      "r": distribute_tensor(torch.full((2,), float(value)), mesh, [Replicate()])},
            "plain": torch.full((9,), float(value)), "step": value, "list": [{"n": value}]}
def numbers(found):
    tensors = [found["plain"], *(tensor.full_tensor() for tensor in found["model"].values())]
    plain = {float(found["step"]), float(found["list"][0]["n"])}
    return sorted({x for tensor in tensors for x in tensor.flatten().tolist()} | plain)
def load(**which):
    into = state(-1)
    try:
        step, own = exp_manager.load_sharded(into, **which)
    except FileNotFoundError as error:
        return {"step": None, "error": str(error)}
    return {"step": step, "numbers": numbers(into), "own": None if own is None else own["rank"]}
def tell(name, found):
    Path(f"{name}.{rank}.tmp").write_text(json.dumps(found))
    os.replace(f"{name}.{rank}.tmp", f"{name}.{rank}")
exp_manager.configure(
    "spread", os.path.abspath("rla_config.yaml"), os.environ["RLA_DATA_ROOT"], code_root=".", run_id="one",
    resume="allow",
)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen(all_ranks=True)
exp_manager.new_saver(max_to_keep=2)
found = load()
tell("loaded", found)
start = 0 if found["step"] is None else found["step"] + 1
for step in range(start, start + count):
    time_step_holder.set_time(step)
    content = state(step)
    save = exp_manager.save_sharded(content, per_rank={"rank": rank})
    for tensor in content["model"].values():
        tensor.to_local().fill_(-5.0)  # the training goes on
    dist.barrier()
saved = [save.wait("local", 60), save.wait("whole", 1 if "unsent" in what else 120), save.problem]
tell("saved", [*saved, *(str(one) for one in exp_manager.checkpoint_status())])
dist.barrier()
if "unsent" not in what:
    tell("again", load())
    reader, into = RLAStorageReader(), state(-1)
    torch.distributed.checkpoint.load(into, storage_reader=reader)
    tell("read", [reader.step, numbers(into)])
exp_manager.close()
dist.destroy_process_group()
"""
Start = Callable[..., list[subprocess.Popen[str]]]


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "distributed.md"
STAND_INS = {
    "scontrol": 'test "$1 $2" = "show hostnames" && echo localhost',
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
}


def recipe(ranks: int) -> str:
    """The block of the document, for so many ranks a node, with a port that is free."""
    found = DOCUMENT.read_text().split("```sh\n")[1].split("```", 1)[0]
    for old, new in (
        ("--nproc-per-node=4", f"--nproc-per-node={ranks}"),
        (":29500", f":{free_port()}"),
        ("train.py", "train.py 2"),
    ):
        assert found.count(old) == 1, old
        found = found.replace(old, new)
    return found


@pytest.fixture
def machines(tmp_path: Path, places: Places, master: Sshd) -> Iterator[Callable[..., tuple[Machine, ...]]]:
    """Machines with agents; their configuration as given."""
    made: list[Machine] = []

    def make(count: int = 2, *, agents: bool = True, **config: Any) -> tuple[Machine, ...]:
        whole = {"SEND_LOG_FILE": True, "REMOTE_SETTING": master.remote(), **config}
        hosts = ("node-a", "node-b", "node-c")[:count]
        made.extend(Machine(tmp_path, places.runtime, host, whole) for host in hosts)
        for machine in made:
            machine.see_nothing_of(*made)
            if agents:
                machine.start_agent()
        return tuple(made)

    yield make
    for machine in made:
        machine.kill_agent()


def start(machines: Sequence[Machine], count: int, *words: str) -> list[subprocess.Popen[str]]:
    """A rank on each machine."""
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": str(len(machines)),
        "GLOO_SOCKET_IFNAME": "lo",  # nobody resolves the machines' names
    }
    for machine in machines:
        (machine.folder / "train.py").write_text(TRAINING)
        for name in ("loaded", "saved", "again", "read"):
            for old in machine.folder.glob(f"{name}.*"):
                old.unlink()
    return [
        machine.start("train.py", str(count), *words, RANK=str(rank), **job)
        for rank, machine in enumerate(machines)
    ]


def end(processes: list[subprocess.Popen[str]], code: int | None = 0) -> list[str]:
    """Wait for all ranks; what they said."""
    errors = []
    for process in processes:
        out, err = process.communicate(timeout=200 * TIME_FACTOR)
        assert code is None or process.returncode == code, err[-5000:]
        errors.append(out + err)
    return errors


def all_told(machines: Sequence[Machine], name: str) -> list[Any]:
    return [
        json.loads((machine.folder / f"{name}.{rank}").read_text()) for rank, machine in enumerate(machines)
    ]


def checkpoints(root: Path) -> Path:
    (found,) = root.glob("checkpoint/*/*/*/*/*")
    return found


def whole_on(master: Sshd) -> dict[str, int]:
    """Name → order of the whole checkpoints on the master, all of whose files are as they were saved."""
    found = {}
    for path in master.root.glob("checkpoint/*/*/*/*/*/*.dcp"):
        whole = read_whole(path)
        if whole is not None:
            assert not list(shard_problems(path, whole, hashes=True))
            found[path.name] = whole.order
    return found


def test_machines_that_share_the_master_alone_save_and_load_together(
    machines: Callable[..., tuple[Machine, ...]], master: Sshd
) -> None:
    *both, new = machines(3)
    errors = end(start(both, 3))
    for rank, saved in enumerate(all_told(both, "saved")):
        assert saved[:3] == [True, True, ""], (saved, errors)
        assert "checkpoint_2: whole, on the master; 1 of 2 shards are here, too" in saved[3:]
        assert all_told(both, "again")[rank] == {"step": 2, "numbers": [2.0], "own": rank}
        assert all_told(both, "read")[rank] == [2, [2.0]]
    assert "checkpoint_2.dcp" in whole_on(master)
    wait_until(lambda: not list((checkpoints(master.root) / ".rla-parts").glob("checkpoint_*")))
    now = [both[0], new]  # which has nothing
    end(start(now, 1))
    assert all_told(now, "loaded") == [{"step": 2, "numbers": [2.0], "own": rank} for rank in range(2)]
    assert all_told(now, "again") == [{"step": 3, "numbers": [3.0], "own": rank} for rank in range(2)]


@pytest.mark.further
def test_a_machine_that_cannot_fetch_stops_the_load_on_all_ranks(
    machines: Callable[..., tuple[Machine, ...]], master: Sshd
) -> None:
    both = machines()
    end(start(both, 2))
    a, b = (checkpoints(machine.root) for machine in both)
    shutil.rmtree(b / "checkpoint_1.dcp")
    (checkpoints(master.root) / "checkpoint_1.dcp" / "__0_0.distcp").unlink()
    for error in end(start(both, 1), None):
        assert "FetchError: node-b: checkpoint_1.dcp must come from the master" in error
    assert read_whole(a / "checkpoint_1.dcp") is not None
    end(start(both[:1], 1))  # one machine goes on with what both have saved
    (found,) = all_told(both[:1], "loaded")
    assert found == {"step": 1, "numbers": [1.0], "own": None}


@pytest.mark.further
def test_what_one_machine_has_and_still_sends_is_waited_for(
    machines: Callable[..., tuple[Machine, ...]], master: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of one machine is resumed on two."""
    both = machines()
    sends = both[0].config.read_text()
    both[0].config.write_text(f"{sends}AGENT: {{replicate_ignore: ['*.distcp']}}\n")
    both[0].start_agent()
    end(start(both[:1], 2))
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", "20")
    for error in end(start(both, 1), None):
        assert "FetchError: node-b: checkpoint_1.dcp must come from the master" in error
        assert "it is on node-a, whose agent has not sent all of it in 20 s" in error
    assert whole_on(master) == {}
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", "60")
    both[0].config.write_text(sends)
    ranks = start(both, 1)
    both[0].start_agent()
    end(ranks)
    assert [found["step"] for found in all_told(both, "loaded")] == [1, 1]


@pytest.mark.further
def test_without_the_agents_nothing_is_lost_and_the_training_goes_on(
    machines: Callable[..., tuple[Machine, ...]], master: Sshd
) -> None:
    both = machines(AGENT={"autostart": False})
    both[1].kill_agent()
    end(start(both, 2, "unsent"))
    a, b = (checkpoints(machine.root) for machine in both)
    for saved in all_told(both, "saved"):
        assert saved[:3] == [True, False, ""]
        assert "checkpoint_1: 1 of 2 shards, which wait for the others on the master" in saved[3:]
    assert len(waiting_parts(a)) == len(waiting_parts(b)) == 2
    both[1].start_agent()
    wait_until(lambda: set(whole_on(master)) == {"checkpoint_0.dcp", "checkpoint_1.dcp"}, 60)
    wait_until(lambda: not waiting_parts(a) and not waiting_parts(b), 60)
    end(start(both, 1))
    assert [found["step"] for found in all_told(both, "loaded")] == [1, 1]


@pytest.mark.further
def test_a_machine_that_is_gone_costs_its_saves_and_changes_nothing_when_it_is_back(
    machines: Callable[..., tuple[Machine, ...]], master: Sshd
) -> None:
    both = machines(AGENT={"autostart": False})
    end(start(both, 1))
    both[1].kill_agent()  # what its ranks save from now on stays there
    end(start(both, 2, "unsent"))
    assert set(whole_on(master)) == {"checkpoint_0.dcp"}
    (said,) = end(start(both[:1], 2))
    assert "the master lacks parts that other machines have of checkpoint_1, checkpoint_2" in said
    (found,) = all_told(both[:1], "loaded")
    assert found == {"step": 0, "numbers": [0.0], "own": None}
    a, b = (checkpoints(machine.root) for machine in both)
    wait_until(lambda: {"checkpoint_1.dcp", "checkpoint_2.dcp"} <= set(whole_on(master)), 60)
    before = whole_on(master)
    both[1].start_agent()
    there = checkpoints(master.root) / ".rla-parts"
    wait_until(lambda: not waiting_parts(b) and not list(there.glob("checkpoint_*/**/*")), 60)
    assert whole_on(master) == before
    assert read_whole(a / "checkpoint_2.dcp") is not None
    end(start(both, 1))
    assert all_told(both, "loaded") == [{"step": 2, "numbers": [2.0], "own": None} for _ in both]


@pytest.mark.further
def test_a_machine_that_sends_nothing_is_named(machines: Callable[..., tuple[Machine, ...]]) -> None:
    both = machines()
    config = both[1].config
    config.write_text(config.read_text().replace("SEND_LOG_FILE: true", "SEND_LOG_FILE: false"))
    end(start(both, 1, "unsent"))
    for saved in all_told(both, "saved"):
        assert saved[:2] == [False, False]
        assert "rank 1 on node-b: the ranks have several data roots" in saved[2]


@pytest.mark.further
def test_the_recipe_for_slurm(
    machines: Callable[..., tuple[Machine, ...]], tmp_path: Path, master: Sshd
) -> None:
    """The batch script runs once on each machine, as srun runs its command: with the variables of a task."""
    ranks, nodes = 2, machines(agents=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(stat.S_IRWXU)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    training = TRAINING.replace(' run_id="one",\n    resume="allow",', "")
    assert training != TRAINING
    for attempt, step in enumerate([None, 1]):
        job = recipe(ranks)
        jobs = []
        for number, machine in enumerate(nodes):
            (machine.folder / "train.py").write_text(training)
            (machine.folder / "job.sh").write_text(job)
            slurm = {
                "SLURM_JOB_ID": "4711",
                "SLURM_STEP_ID": "0",
                "SLURM_RESTART_COUNT": str(attempt),
                "SLURM_JOB_NODELIST": "node-[a-b]",
                "SLURM_NNODES": "2",
                "SLURM_NTASKS": "2",
                "SLURM_NODEID": str(number),
                "SLURM_PROCID": str(number),
                "SLURM_LOCALID": "0",
            }
            bash = "import os; os.execvp('bash', ['bash', 'job.sh'])"
            jobs.append(
                machine.start(
                    "-c", bash, PATH=path, GLOO_SOCKET_IFNAME="lo", PET_LOCAL_ADDR="127.0.0.1", **slurm
                )
            )
        codes = wait_until(partial(_ended, jobs), 200)
        errors = [process.communicate(timeout=60 * TIME_FACTOR)[1] for process in jobs]
        assert codes == [0, 0], "\n".join(error[-3000:] for error in errors)
        told = [path for machine in nodes for path in sorted(machine.folder.glob("loaded.*"))]
        assert len(told) == 2 * ranks
        for found in told:
            assert f'"step": {"null" if step is None else step}' in found.read_text()
    assert "checkpoint_3.dcp" in whole_on(master)
    assert len(list(master.root.glob("log/*/*/*/*/*/run.json"))) == 1


def _ended(jobs: Sequence[subprocess.Popen[str]]) -> list[int] | None:
    """Their exit codes; where one has failed, those of the others are ended by us."""
    codes = [process.poll() for process in jobs]
    if any(codes):
        for process in jobs:
            process.terminate()
    known = [code for code in codes if code is not None]
    return known if len(known) == len(jobs) else None
