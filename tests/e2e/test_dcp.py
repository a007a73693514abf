"""torch.distributed.checkpoint's own calls by real ranks: FSDP 1 and 2, HSDP, `async_save`; other ranks load.

In each save all weights hold one number, the time-step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.torchrun import HEAD, run

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

MODELS = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor
from rla_client.integrations.dcp import RLAStorageReader, RLAStorageWriter
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
cpu = torch.device("cpu")
def model(kind):
    made = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 3))
    if kind == "fsdp1":
        return FullyShardedDataParallel(made, device_id=cpu, use_orig_params=True)
    if kind == "fsdp2":
        return fully_shard(made, mesh=init_device_mesh("cpu", (world,)))
    rows = 2 if world % 2 == 0 else 1
    shape, names = (rows, world // rows), ("replicate", "shard")
    return fully_shard(made, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
def fill(made, value):
    found = get_model_state_dict(made)
    state = {name: torch.full_like(tensor, float(value)) for name, tensor in found.items()}
    set_model_state_dict(made, state)
def numbers(made):
    found = set()
    for tensor in get_model_state_dict(made).values():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if hasattr(whole, "local_shards"):
            whole = torch.cat([shard.tensor.flatten() for shard in whole.local_shards()] or [torch.zeros(0)])
        found |= set(whole.flatten().tolist())
    return sorted(found)
def configure():
    exp_manager.configure("dcp", config, data_root, run_id="d-1", resume="allow")
    exp_manager.set_hyper_param(lr=0.1)
    exp_manager.log_files_gen()
    exp_manager.new_saver(max_to_keep=1)
"""
SAVE = """
configure()
for number, kind in enumerate(("fsdp1", "fsdp2", "hsdp")):
    made = model(kind)
    for step in (2 * number + 1, 2 * number + 2):
        time_step_holder.set_time(step)
        fill(made, step)
        state = {"model": get_model_state_dict(made), "step": step}
        if step % 2:
            dcp.save(state, storage_writer=RLAStorageWriter(kind))
        else:
            done = dcp.async_save(state, storage_writer=RLAStorageWriter(kind))
            for tensor in made.parameters():
                tensor.data.fill_(-1.0)  # the training goes on
            done.result()
dist.barrier()
exp_manager.close()
dist.destroy_process_group()
"""
LOAD = """
folder = next(Path(data_root).rglob("*.dcp")).parent
found = {}
for kind in ("fsdp1", "fsdp2", "hsdp"):
    made = model(kind)
    fill(made, -2)
    state = {"model": get_model_state_dict(made), "step": 0}
    reader = RLAStorageReader(kind, folder=folder)
    dcp.load(state, storage_reader=reader)
    set_model_state_dict(made, state["model"])
    found[kind] = [reader.step, state["step"], numbers(made)]
(out / f"loaded.{world}.{rank}").write_text(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_ways_to_shard_load_at_other_numbers_of_ranks(tmp_path: Path, agent: Any) -> None:
    for folder in ("data", "tmp"):
        (tmp_path / folder).mkdir()
    for name, part in (("save", SAVE), ("load", LOAD)):
        (tmp_path / f"{name}.py").write_text(f"{HEAD}\n{MODELS}\n{part}")
    run(tmp_path / "save.py", 4)
    folders = sorted(path.name for path in (tmp_path / "data").rglob("*.dcp"))
    assert folders == ["fsdp1_2.dcp", "fsdp2_4.dcp", "hsdp_6.dcp"]
    run(tmp_path / "load.py", 2)
    expected = {kind: [step, step, [float(step)]] for kind, step in (("fsdp1", 2), ("fsdp2", 4), ("hsdp", 6))}
    for rank in range(2):
        assert json.loads((tmp_path / f"loaded.2.{rank}").read_text()) == expected
