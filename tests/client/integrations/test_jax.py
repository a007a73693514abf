"""Checkpoints of JAX's pytrees."""

from __future__ import annotations

import pytest
from support.user_scripts import Scripts

pytest.importorskip("jax", reason="jax is not installed: make test-integrations")
pytest.importorskip("torch", reason="needs PyTorch")
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
