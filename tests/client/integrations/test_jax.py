"""Checkpoints of JAX's pytrees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ports import free_port
from support.user_scripts import Scripts

pytest.importorskip("jax", reason="jax is not installed: make test-integrations")
torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch.distributed.checkpoint import load  # noqa: E402 - after the check that it is there

pytestmark = pytest.mark.slow

STATE = """
import dataclasses, os, sys, typing
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np
import rla_client
from rla_client import exp_manager
from rla_client.errors import ArgumentError
from rla_client.integrations.jax import load_checkpoint, save_checkpoint

class Adam(typing.NamedTuple):
    count: jax.Array
    mu: dict
    nothing: None = None

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Train:
    params: dict
    opt: tuple

def state(seed):
    key = jax.random.key(seed)
    params = {"dense": {"w": jax.random.normal(key, (64, 32)), "b": jnp.zeros(32, jnp.bfloat16) + seed}}
    small = jnp.ones(3, jnp.float8_e4m3fn) * seed
    opt = (Adam(jnp.int32(seed), {"w": jnp.full((2, 2), seed, jnp.uint32)}), small)
    return {"train": Train(params, opt), "key": key, "step": seed, "host": np.arange(3) + seed}

def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(a) is type(b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0)
        if isinstance(a, jax.Array) and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.array_equal(np.asarray(a), np.asarray(b)), (a, b)
"""


def test_a_pytree_comes_back_bit_by_bit(scripts: Scripts) -> None:
    scripts.run(
        STATE
        + """
rla_client.init("jax")
for step in (1, 2):
    exp_manager.set_timestep(step)
    save_checkpoint(state(step))
step, found = load_checkpoint(state(0))
assert step == 2
same(found, state(2))
assert exp_manager.flush(30)
same(load_checkpoint(state(0), 1)[1], state(1))
step, plain = load_checkpoint()
assert plain["train"]["opt"][0]["count"] == 2
assert plain["train"]["params"]["dense"]["b"].dtype == jnp.bfloat16
for wrong in (2, {"other": jnp.ones(1)}, {"train": {"params": {"dense": {"w": jnp.ones((1, 1))}}}}):
    try:
        load_checkpoint(wrong)
    except ArgumentError as error:
        assert any(word in str(error) for word in ("other", "shape", "ckp_index=2"))
    else:
        raise AssertionError(wrong)
"""
    )
    (run,) = scripts.runs()
    path = run.folder("checkpoint") / "checkpoint_2.pt"
    import torch

    from rla_client.checkpoint.loading import load_file

    assert path.exists()
    content = load_file(path)  # weights_only, and without jax
    weights = content["train"]["params"]["dense"]
    assert weights["w"].shape == (64, 32)
    assert weights["b"].dtype == torch.bfloat16
    assert content["host"].tolist() == [2, 3, 4]


def test_a_killed_program_goes_on_with_its_state(scripts: Scripts) -> None:
    source = (
        STATE
        + """
rla_client.init("jax", data_root="data", run_id="mine", resume="allow")
if exp_manager.resumed_from is None:
    exp_manager.set_timestep(5)
    save_checkpoint(state(5))
    os.kill(os.getpid(), 9)
step, found = load_checkpoint(state(0))
assert step == 5
same(found, state(5))
print("went on")
"""
    )
    scripts.run(source, fails=True)
    scripts.runs(1)
    assert "went on" in scripts.run(source).stdout


SHARDED = """
import os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[2]}"
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
import jax, jax.numpy as jnp, numpy as np
if world > 1:
    import torch.distributed as dist
    dist.init_process_group("gloo")
    address = f"127.0.0.1:{os.environ['JAX_PORT']}"
    jax.distributed.initialize(address, num_processes=world, process_id=rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from rla_client import exp_manager
from rla_client.errors import ArgumentError
from rla_client.integrations.jax import load_sharded, save_sharded
mesh = Mesh(np.array(jax.devices()).reshape(-1), ("x",))

def array(shape, spec, dtype, base):
    full = (np.arange(int(np.prod(shape))).reshape(shape) + base).astype(dtype)
    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda index: full[index])

def tree(base, turned):
    specs = [P(None, "x"), P("x", None)] if turned else [P("x", None), P(None, "x")]
    return {
        "w": array((8, 4), specs[0], jnp.float32, base), "h": array((4, 8), specs[1], jnp.bfloat16, base),
        "same": array((3,), P(), jnp.int32, base), "list": [array((8,), P("x"), jnp.float32, base)],
        "key": jax.random.key(base), "n": base, "host": np.arange(3) + base,
    }

def check(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if not isinstance(one, jax.Array):
            assert np.array_equal(one, other), (one, other)
            continue
        assert one.sharding == other.sharding and one.dtype == other.dtype
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        for a, b in zip(one.addressable_shards, other.addressable_shards, strict=True):
            assert np.array_equal(np.asarray(a.data), np.asarray(b.data)), (a.data, b.data)

exp_manager.configure("jax", "rla_config.yaml", "data", code_root=".", run_id="one", resume="allow")
exp_manager.log_files_gen(all_ranks=True)
if sys.argv[1] == "save":
    for step in (4, 5):
        exp_manager.set_timestep(step)
        handle = save_sharded(tree(step, False))
        assert handle.wait("whole", 60), handle.problem
else:
    step, found, _ = load_sharded(tree(0, True))
    assert step == 5
    check(found, tree(5, True))
    wrong = {**tree(0, True), "w": array((8, 8), P("x"), jnp.float32, 0)}
    try:
        load_sharded(wrong)
    except ArgumentError as error:
        assert "w" in str(error), error
    else:
        raise AssertionError("a wrong shape")
exp_manager.close()
"""
CONFIG = "AGENT: {autostart: false}\n"


@pytest.mark.parametrize("world", [1, 2])
def test_shards_load_onto_another_mesh(tmp_path: Path, world: int) -> None:
    (tmp_path / "rla_config.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text(SHARDED)

    def run(what: str, devices: int, ranks: int) -> None:
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "JAX_PORT": str(free_port())}
        processes = [
            subprocess.Popen(
                [sys.executable, "train.py", what, str(devices)],
                cwd=tmp_path,
                env={
                    **os.environ,
                    **job,
                    **({"RANK": str(rank), "WORLD_SIZE": str(ranks)} if ranks > 1 else {}),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        for process in processes:
            _, err = process.communicate(timeout=200)
            assert process.returncode == 0, err[-3000:]

    run("save", 2, world)
    run("load", 4, 1)
    (path,) = tmp_path.glob("data/checkpoint/jax/*/*/*/*/checkpoint_5.dcp")
    whole = {"w": torch.zeros(8, 4), "h": torch.zeros(4, 8, dtype=torch.bfloat16)}
    load(whole, checkpoint_id=path)
    assert torch.equal(whole["w"], torch.arange(32.0).reshape(8, 4) + 5)
    assert torch.equal(whole["h"], (torch.arange(32.0).reshape(4, 8) + 5).to(torch.bfloat16))
