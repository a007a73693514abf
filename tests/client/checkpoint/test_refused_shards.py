"""Tensors on several ranks: two real ranks of gloo save and load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ports import free_port

torch = pytest.importorskip("torch")

RANKS = """
import io, json, os, pickle, sys, types, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from rla_client.checkpoint.loading import load_file
from rla_client.checkpoint.pickling import capture
from rla_client.checkpoint.direct_write import write_checkpoint
from rla_client.contract.errors import ShardedContentError, SnapshotError
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.launcher.snapshot.snapshot_pickle import encode
from rla_client.run.state.custom_data import Pickled, open_own, split_arrays, split_custom

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
two = init_device_mesh("cpu", (world, 1)) if world > 1 else mesh

class Agent:
    def __init__(self, tensor):
        self.policy = types.SimpleNamespace(weight=tensor)

def fsdp_state():
    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model, model.state_dict()

model, fsdp1 = fsdp_state()
layer = torch.nn.Linear(4, 4)
fully_shard(layer)
optimizer = torch.optim.Adam(layer.parameters())
layer(torch.ones(2, 4)).sum().backward()
optimizer.step()
shard = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
contents = {
    "shard": shard,
    "in a dict": {"a": [1, ("x", shard)]},
    "in a set of objects": {"agent": Agent(shard)},
    "a parameter": torch.nn.Parameter(shard),
    "one row": distribute_tensor(torch.arange(1.0), mesh, [Shard(0)]),
    "replicate": distribute_tensor(torch.arange(8.0), mesh, [Replicate()]),
    "partial": DTensor.from_local(torch.ones(2), mesh, [Partial()]),
    "fully_shard": layer.state_dict(),
    "optimizer": optimizer.state_dict(),
    "module": {"module": layer.state_dict(keep_vars=True)},
    "fsdp1": fsdp1,
    "flat parameters": list(model.parameters()),
}
if world > 1:
    contents["two dimensions"] = distribute_tensor(torch.ones(4, 4), two, [Shard(0), Shard(1)])
found = {}
for name, content in contents.items():
    path = folder / f"{name}.{rank}.pt".replace(" ", "-")
    stamp = Stamp("0" * 16, 1, "run", "checkpoint", 1, {})
    answers = []
    for work in (lambda: capture(content), lambda: load_file(path, trust=True)):
        if len(answers) == 1:
            write_checkpoint(content, path, stamp)
        try:
            work()
            answers.append("")
        except ShardedContentError as error:
            answers.append(str(error))
    found[name] = answers
whole = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).full_tensor()
capture({"whole": whole})
dist.barrier()
dist.destroy_process_group()
found["late"] = []
for name, work in (
    ("custom data", lambda: split_arrays({"w": [shard]}, {}, "")),
    ("snapshot", lambda: encode({"algo": Agent(shard)})),
):
    try:
        work()
        found[name] = ["", ""]
    except (ShardedContentError, SnapshotError) as error:
        found[name] = [str(error), "is not loaded: full_state_dict=True"]
read = open_own(Pickled(pickle.dumps(Agent(shard))), None)
found["object of custom data"] = ["", getattr(read, "problem", "")]
try:
    split_custom({"agent": Agent(shard)}, "run")
except ShardedContentError as error:
    found["object of custom data"][0] = str(error)
for work in (lambda: capture(shard), lambda: load_file(folder / f"fsdp1.{rank}.pt", trust=True)):
    try:
        work()
        found["late"].append("")
    except ShardedContentError as error:
        found["late"].append(str(error))
(folder / f"found.{rank}").write_text(json.dumps(found))
"""


def run_ranks(folder: Path, world: int) -> list[dict[str, list[str]]]:
    """What each rank was told about each content at save and at load."""
    script = folder / "ranks.py"
    script.write_text(RANKS)
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(world),
        "--master-port",
        str(free_port()),
    ]
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(folder)],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"found.{rank}").read_text()) for rank in range(world)]


@pytest.mark.slow
def test_shards_are_refused_at_save_and_at_load(tmp_path: Path) -> None:
    for found in run_ranks(tmp_path, 2):
        assert len(found) > 15
        for name, (saved, loaded) in found.items():
            assert "only this rank's shard would be saved: exp_manager.save_sharded(" in saved, name
            assert "full_state_dict=True" in saved, name
            assert "is not loaded" in loaded, name
            assert "full_state_dict=True" in loaded, name
        assert "DTensor of shape (8,)" in found["in a dict"][0]
        assert "FlatParameter of shape (20,)" in found["flat parameters"][0]
        assert found["object of custom data"][0].startswith("custom data 'agent': this content cannot")


@pytest.mark.slow
def test_on_a_mesh_of_one_rank_all_are_saved(tmp_path: Path) -> None:
    (found,) = run_ranks(tmp_path, 1)
    late = found.pop("late")
    assert found.pop("custom data")[0] == found.pop("snapshot")[0] == ""
    assert all(answers == ["", ""] for answers in found.values()), found
    assert late == ["", ""]
