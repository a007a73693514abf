"""Sharded checkpoints while ranks, agents and the link to the master are killed at chosen points.

What a step saves follows from what the step before it did, and all tensors hold that one number. So who knows
the time-step knows what a checkpoint must hold, and which row the curve must have, however often the
training was killed, and at however many ranks it went on.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from support.held_points import Held, Point
from support.machines import Machine
from support.ports import free_port
from support.replication_lab import Sshd
from support.waiting import DEADLINE_S, TIME_FACTOR, wait_until

from rla_client.contract.agent.places import Places
from rla_client.contract.sharded_checkpoint.check import shard_problems
from rla_client.contract.sharded_checkpoint.folder import read_fence, read_whole, waiting_parts
from rla_client.contract.sharded_checkpoint.records import Whole

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
START_S: Final = 60.0
REACH_S: Final = 30.0  # a point, from when all ranks train
PAUSE_S: Final = 0.1  # between two saves
SENT_PAUSE_S: Final = 2.0  # the same, where one machine's whole checkpoints live long enough to be sent
ROUNDS: Final = int(os.environ.get("RLA_TEST_SHARD_KILLS", "1"))  # of each point
TRAINING = """
import json, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
torch.set_num_threads(1)
count, pause_s = int(sys.argv[1]), float(sys.argv[2])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
from rla_client import exp_manager, logger, time_step_holder
mesh = init_device_mesh("cpu", (world,))
def state(value, step):
    wide = torch.full((257, 1024), float(value))
    return {"model": {"wide": distribute_tensor(wide, mesh, [Shard(0)]),
                      "narrow": distribute_tensor(torch.full((3, 2), float(value)), mesh, [Shard(0)]),
                      "same": distribute_tensor(torch.full((2,), float(value)), mesh, [Replicate()])},
            "plain": torch.full((9,), float(value)), "value": value, "step": step}
def numbers(found):
    tensors = [found["plain"], *(tensor.full_tensor() for tensor in found["model"].values())]
    return sorted({x for tensor in tensors for x in tensor.unique().tolist()} | {float(found["value"])})
def tell(name, found):
    Path(f"{name}.{rank}.tmp").write_text(json.dumps(found))
    os.replace(f"{name}.{rank}.tmp", f"{name}.{rank}")
exp_manager.configure(
    "kills", os.path.abspath("rla_config.yaml"), os.environ["RLA_DATA_ROOT"], code_root=".", run_id="one",
    resume="allow",
)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen(all_ranks=True)
exp_manager.new_saver(max_to_keep=2)
into = state(-1, -1)
try:
    step, own = exp_manager.load_sharded(into)
    tell("loaded", {"step": step, "inner": into["step"], "numbers": numbers(into), "own": own})
except FileNotFoundError as error:
    step, into["value"] = -1, 0
    tell("loaded", {"step": None, "error": str(error)})
value = into["value"]
for step in range(step + 1, step + 1 + count):
    value = (value * 5 + 3) % 1009
    time_step_holder.set_time(step)
    logger.record_tabular("x", value)
    logger.dump_tabular()
    content = state(value, step)
    save = exp_manager.save_sharded(content, per_rank={"rank": rank})
    for tensor in content["model"].values():
        tensor.to_local().fill_(-5.0)  # the training goes on
    dist.barrier()
    print(step, flush=True)
    time.sleep(pause_s)
tell("saved", [save.wait("local", 60), save.wait("whole", 120), save.problem])
dist.barrier()
exp_manager.close()
dist.destroy_process_group()
"""
SAVER, WRITER = "rla_client.checkpoint.sharded_saver", "rla_client.checkpoint.sharded_writer"
PUBLISH = "rla_client.contract.sharded_checkpoint.publish"
SEND, MASTER = "rla_agent.replicate.worker.send", "rla_agent.replicate.worker.sharded_master"
COPY, REMOVAL = "rla_client.checkpoint.shard_capture", "rla_client.contract.sharded_checkpoint.removal"
RECEIPT, STEP = "shard-", f"{PUBLISH}:carry_out"
THERE, SENDER = f"{MASTER}:_Publication._carry_out", f"{SEND}:Sender.send_all"
RANK_POINTS: Final = (
    Point("in memcpy", f"{COPY}:CopyBuffer.fill", "during"),
    Point("before the thread has it", f"{SAVER}:ShardedSaver._copy", "after"),
    Point("in the shard", f"{WRITER}:write_shard", "during"),
    Point("before the receipt", f"{WRITER}:write_atomic", "before", RECEIPT),
    Point("after the receipt", f"{WRITER}:write_atomic", "after", RECEIPT),
    Point("in delete", f"{REMOVAL}:remove_replaced", "before"),
    Point("in delete", f"{REMOVAL}:remove_replaced", "during"),
)
ALONE_POINTS: Final = (  # ranks that share a data root
    *RANK_POINTS,
    Point("before the metadata", STEP, "before", "PUT_METADATA"),
    Point("before whole.json", STEP, "before", "WRITE_WHOLE"),
    Point("before the rename", STEP, "before", "TAKE_NAME"),
    Point("after the rename", STEP, "after", "TAKE_NAME"),
)
SPREAD_POINTS: Final = (
    *RANK_POINTS,
    Point("before it is a part", STEP, "before", "MARK_PART"),
    Point("after it is a part", STEP, "after", "MARK_PART"),
)
SENDING_POINTS: Final = (
    Point("before the shard", SENDER, "before", ".distcp"),
    Point("in the shard", SENDER, "during", ".distcp"),
    Point("before the receipt", SENDER, "before", RECEIPT),
    Point("after the receipt", SENDER, "after", RECEIPT),
)
WHOLE_POINTS: Final = (  # agents of machines that have whole checkpoints
    *SENDING_POINTS,
    Point("before the metadata", SENDER, "before", ".metadata"),
    Point("before whole.json", SENDER, "before", "whole.json"),
    Point("after whole.json", SENDER, "after", "whole.json"),
)
OTHERS_POINTS: Final = (  # agents of parts that rank 0's machine puts together on the master
    *SENDING_POINTS,
    Point("before its name here", f"{MASTER}:finish_on_master", "before"),
    Point("in its name here", f"{MASTER}:finish_on_master", "during"),
)
PART_POINTS: Final = (
    *OTHERS_POINTS,
    Point("before the rename there", THERE, "before", "TAKE_NAME"),
    Point("after the rename there", THERE, "after", "TAKE_NAME"),
    Point("before the metadata", THERE, "before", "PUT_METADATA"),
    Point("before whole.json", THERE, "before", "WRITE_WHOLE"),
    Point("after whole.json", THERE, "after", "WRITE_WHOLE"),
)
What = Literal["rank 0", "rank N", "agent A", "agent B", "link"]


def value_at(step: int) -> int:
    """What the training holds at a time-step, told apart from it."""
    value = 0
    for _ in range(step + 1):
        value = (value * 5 + 3) % 1009
    return value


@dataclass
class Lab:
    """Machines with agents, their master, and the oracle."""

    machines: Sequence[Machine]
    master: Sshd
    before: int = -1  # time-step that can never be lost any more
    last: int = -1  # the last one that was loaded

    def start(self, world: int, count: int, victim: int | None = None, held: Held | None = None) -> list[Any]:
        """The ranks of a job, as evenly on the machines as they go; an agent is killed where no rank is."""
        pause_s = SENT_PAUSE_S if len(self.machines) == 1 and victim is None else PAUSE_S
        used = min(world, len(self.machines))
        places = [self.machines[rank * used // world] for rank in range(world)]
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
        job["GLOO_SOCKET_IFNAME"] = "lo"  # nobody resolves the machines' names
        for machine in self.machines:
            (machine.folder / "train.py").write_text(TRAINING)
            for name in ("loaded", "saved"):
                for old in machine.folder.glob(f"{name}.*"):
                    old.unlink()
        self.places = places
        ranks = []
        for rank, machine in enumerate(places):
            own = {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(places.count(machine))}
            hook = held.environment if held is not None and rank == victim else {}
            ranks.append(machine.start("train.py", str(count), str(pause_s), **job, **own, **hook))
        return ranks

    def told(self, name: str) -> list[Any]:
        """What each rank has told; None of one that has not."""
        found = []
        for rank, machine in enumerate(self.places):
            path = machine.folder / f"{name}.{rank}"
            found.append(json.loads(path.read_text()) if path.exists() else None)
        return found

    def check_loads(self) -> None:
        """What ranks have loaded is the newest whole checkpoint, and of one save; the oracle."""
        for found in self.told("loaded"):
            if found is None:
                continue  # killed before
            step = found["step"]
            if step is None:
                assert self.before < 0, (self.before, found)
                continue
            assert step >= self.before, (self.before, found)
            assert (found["inner"], found["numbers"]) == (step, [float(value_at(step))]), found
            self.last = max(self.last, step)

    def note_whole(self) -> None:
        """See what is whole on the master, or here where one machine has all; it must stay.

        A save of an earlier process does not count where it became whole after the run had continued without.
        """
        wholes = whole_in(self.master.root)
        if len(self.machines) == 1:
            wholes |= whole_in(self.machines[0].root)
        fences = [read_fence(path) for path in self.machines[0].root.glob("checkpoint/*/*/*/*/*")]
        epoch = max((fence.epoch for fence in fences if fence is not None), default=0)
        own = [one for one in wholes.values() if one.save.epoch >= epoch or one.save.step <= self.last]
        newest = max(own, key=lambda one: one.order, default=None)
        self.before = max(self.before, -1 if newest is None else newest.save.step)

    def check_curve(self) -> None:
        """The curve is that of a run that nobody killed: one row a time-step."""
        rows = wait_until(self._all_rows, DEADLINE_S, "the last row")
        assert rows == {step: value_at(step) for step in range(len(rows))}
        for machine in self.machines:
            for path in machine.root.glob("log/*/*/*/*/*/progress.rank*.csv"):
                others = list(curve(path))
                assert len(dict(others)) == len(others), path
                assert all(value == value_at(step) for step, value in others), path

    def _all_rows(self) -> dict[int, int] | None:
        (path,) = self.machines[0].root.glob("log/*/*/*/*/*/progress.csv")
        found = list(curve(path))
        assert len(dict(found)) == len(found), found
        return dict(found) if found and found[-1][0] == self.last else None


def whole_in(root: Path) -> dict[str, Whole]:
    """The whole checkpoints below a root by name, all of whose files are as they were saved."""
    found = {}
    for path in root.glob("checkpoint/*/*/*/*/*/*.dcp"):
        whole = read_whole(path)
        if whole is None:
            continue
        problems = list(shard_problems(path, whole, hashes=True))
        if read_whole(path) == whole:  # else retention took it while we looked
            assert not problems, (path, problems)
            found[path.name] = whole
    return found


def curve(path: Path) -> Iterator[tuple[int, int]]:
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["x"]:
                yield int(float(row["time-step"])), int(float(row["x"]))


@pytest.fixture
def make_lab(tmp_path: Path, places: Places, master: Sshd) -> Iterator[Callable[[int], Lab]]:
    """So many machines that share the master alone."""
    made: list[Machine] = []

    def make(count: int) -> Lab:
        config = {"SEND_LOG_FILE": True, "REMOTE_SETTING": master.remote()}
        made.extend(Machine(tmp_path, places.runtime, host, config) for host in ("node-a", "node-b")[:count])
        for machine in made:
            machine.see_nothing_of(*made)
            machine.start_agent()
        return Lab(made, master)

    yield make
    for machine in made:
        machine.kill_agent()


def end(processes: Sequence[subprocess.Popen[str]], *, killed: bool) -> list[str]:
    """Wait for all ranks; what they said."""
    errors = []
    for process in processes:
        _, err = process.communicate(timeout=200 * TIME_FACTOR)
        assert killed or process.returncode == 0, err[-5000:]
        errors.append(err)
    return errors


def see_steps(process: subprocess.Popen[str], count: int) -> None:
    """Wait until a rank has saved so often once more."""
    assert process.stdout is not None
    for _ in range(count):
        if not process.stdout.readline():
            assert process.stderr is not None
            pytest.fail(f"it ended: {process.stderr.read()[-5000:]}")


def one_round(lab: Lab, chance: random.Random, what: What, point: Point, world: int) -> bool:
    """A job that is killed; False where its victim never came to the point."""
    machine = lab.machines[-1] if what in {"agent B", "link"} else lab.machines[0]
    victim = {"rank 0": 0, "rank N": world - 1}.get(what)
    if victim is not None:
        machine = lab.machines[victim * min(world, len(lab.machines)) // world]
    held = Held(
        machine.folder, point, chance.randrange(1, 5 if len(lab.machines) > 1 or victim is not None else 3)
    )
    if victim is None:
        machine.kill_agent()
        machine.start_agent(**held.environment)
    ranks = lab.start(world, 100_000, victim, held)
    process = reached(lab, held, ranks, victim)
    if what == "link":  # a run is not resumed without its master
        wait_until(lambda: all(lab.told("loaded")), START_S, "all ranks to load")
        lab.master.stop()
        held.release()
        see_steps(ranks[0], chance.randrange(1, 4))
        lab.master.start()
    elif process is not None:
        kill(process)
    if what.startswith("agent"):
        machine.kill_agent()
        held.release()
        if all(lab.told("loaded")):  # else the agent is waited for, some seconds
            see_steps(ranks[0], chance.randrange(1, 4))
        machine.start_agent()
    if victim is None:
        see_steps(ranks[0], chance.randrange(1, 6))
    time.sleep(chance.random() * 0.2)
    for rank in chance.sample(ranks, world):
        rank.kill()
    held.release()
    end(ranks, killed=True)
    lab.check_loads()
    lab.note_whole()
    if what == "link":
        machine.kill_agent()
        machine.start_agent()
    return process is not None


def reached(lab: Lab, held: Held, ranks: Sequence[Any], victim: int | None) -> int | None:
    """The process that has come to the point; None where none does while all ranks train."""
    until = time.monotonic() + START_S * TIME_FACTOR
    while (process := held.process) is None and time.monotonic() < until:
        if all(lab.told("loaded")):
            until = min(until, time.monotonic() + REACH_S * TIME_FACTOR)
        if victim is None or ranks[victim].poll() is None:
            assert all(rank.poll() is None for rank in ranks), end(ranks, killed=True)
        time.sleep(0.01)
    assert process is not None or all(rank.poll() is None for rank in ranks), end(ranks, killed=True)
    return process


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def points_of(machines: int, what: What) -> tuple[Point, ...]:
    if what.startswith("rank"):
        return ALONE_POINTS if machines == 1 else SPREAD_POINTS
    if what == "agent B":
        return OTHERS_POINTS
    points = WHOLE_POINTS if machines == 1 else PART_POINTS
    return tuple(point for point in points if what != "link" or point.when != "during")


def cases() -> Iterator[Any]:
    few = {(2, "rank N"), (2, "agent B"), (1, "rank 0")}
    for machines in (1, 2):
        for what in ("rank 0", "rank N", "agent A", "agent B", "link"):
            if machines == 1 and what == "agent B":
                continue
            number = len(points_of(machines, what))
            yield pytest.param(machines, what, number, marks=pytest.mark.soak, id=f"{machines}-{what}")
            if (machines, what) in few:
                yield pytest.param(
                    machines, what, 2, marks=pytest.mark.further, id=f"{machines}-{what}-two points"
                )


@pytest.mark.parametrize(("machines", "what", "number"), list(cases()))
def test_some_whole_checkpoint_always_loads(
    make_lab: Callable[[int], Lab], machines: int, what: What, number: int
) -> None:
    """Killed at each of some points, and gone on at 2, 1, 3 or 4 ranks."""
    chance = random.Random(f"{machines} {what}")
    lab = make_lab(machines)
    chosen = points_of(machines, what)
    points = chance.sample(chosen * ROUNDS, number * ROUNDS)
    missed = []
    for point in points:
        world = chance.choice([2, 2, 2, 1, 3, 4]) if what != "rank N" else chance.choice([2, 2, 3, 4])
        if machines == 2 and what.startswith("agent"):  # one rank makes no parts
            world = max(world, 2)
        print(f"{what}, {point.what}, {world} ranks", flush=True)  # noqa: T201 - the soak's log
        if not one_round(lab, chance, what, point, world):
            missed.append(f"{point.what} ({point.when})")
    errors = end(lab.start(2, 2), killed=False)
    lab.check_loads()
    for loaded, saved in zip(lab.told("loaded"), lab.told("saved"), strict=True):
        assert loaded["step"] is not None, errors
        assert saved == [True, True, ""], errors
    lab.last += 2
    lab.check_curve()
    wait_until(lambda: not list(master_parts(lab.master)), 60)
    for machine in lab.machines:
        for folder in machine.root.glob("checkpoint/*/*/*/*/*"):
            assert waiting_parts(folder) == []
    print(f"{len(points)} kills of {what} on {machines} machine(s); not reached: {missed}")  # noqa: T201
    assert len(missed) * 3 <= len(points), missed


def master_parts(master: Sshd) -> Iterator[Path]:
    for folder in master.root.glob("checkpoint/*/*/*/*/*/.rla-parts"):
        yield from folder.glob("checkpoint_*/**/*")
