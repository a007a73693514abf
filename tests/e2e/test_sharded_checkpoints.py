"""Sharded checkpoints of real ranks: torchrun, gloo, FSDP2; ranks that are killed; other numbers of ranks.

In each save all tensors hold one number, the time-step: whatever loads must hold one number, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.torchrun import HEAD, command, run

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("RLA_TEST_SHARD_KILLS", "2"))
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "distributed.md"
STATE = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
def state(value):
    sharded = torch.full((7, 3), float(value))
    return {"model": {"a": distribute_tensor(sharded, mesh, [Shard(0)]),
                      "b": distribute_tensor(torch.full((4, 5), float(value)), mesh, [Shard(1)]),
                      "r": distribute_tensor(torch.full((2,), float(value)), mesh, [Replicate()])},
            "plain": torch.full((9,), float(value)), "step": value, "list": [{"n": value}]}
def numbers(found):
    tensors = [found["plain"], *(tensor.full_tensor() for tensor in found["model"].values())]
    plain = {float(found["step"]), float(found["list"][0]["n"])}
    return sorted({x for tensor in tensors for x in tensor.flatten().tolist()} | plain)
def load():
    into = state(-1)
    try:
        step, own = exp_manager.load_sharded(into)
    except FileNotFoundError as error:
        return {"step": None, "error": str(error)}
    return {"step": step, "numbers": numbers(into), "own": None if own is None else own["rank"]}
"""
TRAIN = """
exp_manager.configure("sharded", config, data_root, run_id="s-1", resume="allow")
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
found = load()
(out / f"loaded.{rank}").write_text(json.dumps(found))
start = -1 if found["step"] is None else found["step"]
(out / f"pid.{rank}").write_text(str(os.getpid()))
for step in range(start + 1, start + 1 + int(sys.argv[3])):
    time_step_holder.set_time(step)
    content = state(step)
    save = exp_manager.save_sharded(content, per_rank={"rank": rank})
    for tensor in content["model"].values():
        tensor.to_local().fill_(-5.0)  # the training goes on
    dist.barrier()
    if rank == 0:
        print(step, flush=True)
print(save.wait("whole", 60), save.problem, file=sys.stderr, flush=True)
exp_manager.close()
dist.destroy_process_group()
"""

DIES = """
    if step == 2 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        assert save.wait("whole", 60), save.problem
        os.kill(os.getpid(), 9)
"""


def write_script(folder: Path, *parts: str) -> Path:
    script = folder / "train.py"
    script.write_text("\n".join([HEAD, *parts]))
    (folder / "data").mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    return script


def loaded(folder: Path, world: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"loaded.{rank}").read_text()) for rank in range(world)]


@pytest.mark.timeout(600)
@pytest.mark.further
def test_other_numbers_of_ranks_load(tmp_path: Path, agent: Any) -> None:
    script = write_script(tmp_path, STATE, TRAIN)
    run(script, 2, 3)
    for world, step in ((2, 2), (1, 3), (3, 4)):
        run(script, world, 1)
        for rank, found in enumerate(loaded(tmp_path, world)):
            assert found["step"] == step
            assert found["numbers"] == [float(step)]
            assert found["own"] == (rank if step == 2 else None)
    folders = sorted(path.name for path in (tmp_path / "data").rglob("*.dcp"))
    assert folders == ["checkpoint_4.dcp", "checkpoint_5.dcp"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.further)])
def test_some_whole_checkpoint_always_loads(
    tmp_path: Path, agent: Any, victim: int, wait_until: Callable[..., Any]
) -> None:
    chance = random.Random(victim)
    script = write_script(tmp_path, STATE, TRAIN)
    before = None
    for _ in range(KILLS):
        for old in tmp_path.glob("pid.*"):
            old.unlink()
        process = subprocess.Popen(
            **command(script, 2, 100000), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(2, 12)):
            assert process.stdout.readline()
        deadline = time.monotonic() + chance.random() * 0.05
        while time.monotonic() < deadline:
            pass
        os.kill(int((tmp_path / f"pid.{victim}").read_text()), signal.SIGKILL)
        process.stdout.close()
        process.wait(120)
        for found in loaded(tmp_path, 2):
            if before is not None:
                assert found["step"] is not None
                assert found["step"] >= before
                assert found["numbers"] == [float(found["step"])]
        before = loaded(tmp_path, 2)[0]["step"] if before is None else before
        before = max(-1 if before is None else before, _newest(tmp_path))
    run(script, 2, 1)
    for found in loaded(tmp_path, 2):
        assert found["step"] >= before
        assert found["numbers"] == [float(found["step"])]


@pytest.mark.timeout(600)
@pytest.mark.further
def test_ranks_that_torchrun_starts_again_go_on(tmp_path: Path, agent: Any) -> None:
    train = TRAIN.replace("    dist.barrier()\n", f"{DIES}    dist.barrier()\n", 1)
    script = write_script(tmp_path, STATE, train)
    run(script, 2, 4, restarts=3)  # a fresh gloo may meet an address of the former ranks, and fail
    for rank, found in enumerate(loaded(tmp_path, 2)):
        assert found == {"step": 2, "numbers": [2.0], "own": rank}
    assert _newest(tmp_path) == 6


FULL = """
exp_manager.configure("sharded", config, data_root, run_id="s-1", resume="allow")
exp_manager.log_files_gen()
def save(step):
    time_step_holder.set_time(step)
    made = exp_manager.save_sharded(state(step))
    whole = made.wait("whole", 60)
    dist.barrier()
    return whole, made.problem
told = [save(0)]
if rank == 0:
    with open(os.path.join(data_root, "filler"), "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
dist.barrier()
told.append(save(1))
told.append([load()["step"], [str(one) for one in exp_manager.checkpoint_status()]])
dist.barrier()
if rank == 0:
    os.unlink(os.path.join(data_root, "filler"))
dist.barrier()
told.append(save(2))
told.append([load()["step"]])
(out / f"loaded.{rank}").write_text(json.dumps(told))
exp_manager.close()
dist.destroy_process_group()
"""


@pytest.mark.timeout(600)
@pytest.mark.further
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_costs_the_save_alone(tmp_path: Path, agent: Any) -> None:
    script = write_script(tmp_path, STATE, FULL)
    data = str(tmp_path / "data")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "rla-test", data], check=True)
    try:
        run(script, 2)
    finally:
        subprocess.run(["umount", "-l", data], check=True)
    told: list[Any] = loaded(tmp_path, 2)
    for first, full, then, last, at_end in told:
        assert (first, last, at_end) == ([True, ""], [True, ""], [2])
        assert full[0] is False
        assert "No space left" in full[1] or "has left this save out" in full[1] or "have not come" in full[1]
        assert then[0] == 0
        assert "checkpoint_0: whole, 2 shards" in then[1]


def _newest(folder: Path) -> int:
    steps = [
        int(path.parent.parent.name.removesuffix(".dcp").rpartition("_")[2])
        for path in folder.rglob("checkpoint_*.dcp/.rla/whole.json")
        if "abandoned-" not in str(path)
    ]
    return max(steps, default=-1)


@pytest.mark.further
@pytest.mark.timeout(400)
def test_the_document(tmp_path: Path, agent: Any) -> None:
    text = DOCUMENT.read_text().split("```python\n")
    block = text[1].split("```", 1)[0]
    end = """
assert step == 3 and own is not None
assert all(bool(tensor.full_tensor().isfinite().all()) for tensor in weights.values())
exp_manager.close()
dist.destroy_process_group()
"""
    done = run(write_script(tmp_path, block, end), 2)
    assert "checkpoint_3: whole, 2 shards" in done.stdout
