"""JAX: checkpoints of pytrees, which the agent writes.

    save_checkpoint({"params": params, "opt_state": opt_state, "key": key})
    step, state = load_checkpoint({"params": params, "opt_state": opt_state, "key": key})

The loop waits for one copy of the bytes. The file is a plain nested dict of arrays, which
`exp_manager.load_checkpoint()` and `torch.load` read without JAX. Its keys are those of the pytree: keys of
dicts, names of attributes (flax, optax, dataclasses), numbers in lists and tuples.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np

from rla_client.checkpoint.sharded_save import ShardedSave
from rla_client.contract.errors import ArgumentError, extra
from rla_client.manager import exp_manager
from rla_client.run.run_checkpoints import CHECKPOINT_NAME

with extra("torch", "rla_client.integrations.jax"):  # checkpoints are in its format
    import torch

    from rla_client.checkpoint.jax_sharded_array import ShardedArray

__all__ = ["load_checkpoint", "load_sharded", "save_checkpoint", "save_sharded"]
_ONLY_TORCH_HAS = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
_TYPES = frozenset(_ONLY_TORCH_HAS.values())


def save_checkpoint(tree: Any, checkpoint_name: str = CHECKPOINT_NAME, **further: Any) -> None:
    """Save a pytree at the current time-step; on return it survives SIGKILL.

    Args:
        tree: of arrays of JAX or numpy, typed keys of `jax.random`, numbers, text.
        checkpoint_name: see `exp_manager.save_checkpoint`.
        **further: the same.

    Raises:
        ArgumentError: a leaf is not wholly on this process's devices, or cannot be kept.
        NotConfiguredError: no run is open.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    bare = [(path, jax.random.key_data(leaf) if _is_key(leaf) else leaf) for path, leaf in leaves]
    for path, leaf in bare:  # all at once, before the first is waited for
        if isinstance(leaf, jax.Array):
            if not leaf.is_fully_addressable:
                raise ArgumentError(f"{jax.tree_util.keystr(path)} lies on other hosts, too: gather it first")
            leaf.copy_to_host_async()
    content: dict[Any, Any] = {}
    for path, leaf in bare:
        *above, last = [_name(part) for part in path] or [""]
        place = content
        for name in above:
            place = place.setdefault(name, {})
        place[last] = _portable(leaf)
    exp_manager.save_checkpoint(content, checkpoint_name=checkpoint_name, **further)


def load_checkpoint(
    like: Any = None, ckp_index: int | None = None, checkpoint_name: str = CHECKPOINT_NAME, **further: Any
) -> tuple[int, Any]:
    """A checkpoint as (time-step, pytree); see `exp_manager.load_checkpoint`.

    Args:
        like: a pytree of the same structure: the result is one, with arrays of JAX where it has such, on the
            same devices. Without it the result is the nested dict, of numpy arrays.
        ckp_index: a time-step; None takes the newest.
        checkpoint_name: the series.
        **further: `trust`.

    Raises:
        ArgumentError: the checkpoint has another structure, or a leaf another shape.
        NoCheckpointError: there is none.
    """
    if isinstance(like, int):
        raise ArgumentError(f"`like` is a pytree; a time-step is load_checkpoint(ckp_index={like})")
    step, content = exp_manager.load_checkpoint(ckp_index, checkpoint_name, **further)
    if like is None:
        return step, jax.tree.map(_from_torch, content)
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return step, jax.tree.unflatten(structure, [_restored(content, path, leaf) for path, leaf in paths])


def save_sharded(tree: Any, name: str = CHECKPOINT_NAME, **further: Any) -> ShardedSave:
    """Save a pytree whose arrays are sharded; each process writes the shards of its own devices.

    The checkpoint is like that of `exp_manager.save_sharded`: torch's `dcp.load` reads it, too, and it is
    complete once `whole.json` is there. Jobs of several processes need torch's process group
    (`torch.distributed.init_process_group("gloo")`) beside `jax.distributed`.

    Args:
        tree: of arrays of JAX or numpy, typed keys of `jax.random`, numbers, text.
        name: see `exp_manager.save_sharded`.
        **further: the same: `per_rank`, `metrics`.

    Returns:
        The handle: `wait("local" | "whole", timeout)`.

    Raises:
        ArgumentError: a leaf cannot be kept, or the ranks are not known.
        NotConfiguredError: no run is open.
    """
    leaves = [(path, _bare(leaf)) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    for _, leaf in leaves:  # all at once, before the first is waited for
        if isinstance(leaf, jax.Array):
            for shard in leaf.addressable_shards:
                shard.data.copy_to_host_async()
    state = {_flat(path): _shards(leaf) for path, leaf in leaves}
    return exp_manager.save_sharded(state, name, **further)


def load_sharded(
    like: Any, step: int | None = None, name: str = CHECKPOINT_NAME, *, trust: bool = False
) -> tuple[int, Any, Any]:
    """The newest whole sharded checkpoint as (time-step, pytree, `per_rank` of this rank).

    Args:
        like: a pytree of the same structure with arrays of the same shapes; the result has arrays of JAX with
            its shardings, which need not be those of the save.
        step: a time-step; None takes the newest.
        name: the series.
        trust: see `exp_manager.load_sharded`.

    Raises:
        ArgumentError: the checkpoint has another structure, or a leaf another shape.
        NoCheckpointError, FetchError: see `exp_manager.load_sharded`.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    into = {_flat(path): _shards(_bare(leaf), copy=True) for path, leaf in paths}
    at, own = exp_manager.load_sharded(into, step, name, trust=trust)
    loaded = [_like(leaf, into[_flat(path)]) for path, leaf in paths]
    return at, jax.tree.unflatten(structure, loaded), own


def _flat(path: Any) -> str:
    """Name of a leaf in the flat state."""
    return ".".join(str(_name(part)) for part in path)


def _bare(leaf: Any) -> Any:
    """A leaf, of a typed key its data."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _shards(leaf: Any, *, copy: bool = False) -> Any:
    """What stands for a leaf in a sharded state; `copy`: in memory of its own, to be loaded into."""
    if isinstance(leaf, jax.Array):
        return ShardedArray(leaf, lambda data: _tensor(np.asarray(data), copy=copy))
    return _tensor(leaf, copy=copy) if isinstance(leaf, np.ndarray) else leaf


def _tensor(array: np.ndarray[Any, Any], *, copy: bool) -> torch.Tensor:
    """A tensor over the memory of an array, or of its own."""
    kind = _ONLY_TORCH_HAS.get(array.dtype.name)
    bits = array if kind is None else array.view(f"i{array.itemsize}")
    bits = np.array(bits, order="C") if copy else np.ascontiguousarray(bits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # JAX's memory may not be written, and nobody does
        tensor = torch.from_numpy(bits)
    return tensor if kind is None else tensor.view(kind)


def _like(leaf: Any, value: Any) -> Any:
    """A loaded value in the form of a leaf."""
    if isinstance(value, ShardedArray):
        array = value.array(_array)
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array
    return _array(value) if isinstance(leaf, np.ndarray) else value


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array over the memory of a tensor."""
    found: np.ndarray[Any, Any] = _from_torch(tensor) if tensor.dtype in _TYPES else tensor.numpy()
    return found


def _restored(content: Any, path: Any, leaf: Any) -> Any:
    for name in [_name(part) for part in path] or [""]:
        if not isinstance(content, dict) or name not in content:
            raise ArgumentError(f"this checkpoint has no {jax.tree_util.keystr(path)}")
        content = content[name]
    found = _from_torch(content)
    if not isinstance(leaf, jax.Array):
        return found
    if _is_key(leaf):
        return jax.random.wrap_key_data(found, impl=jax.random.key_impl(leaf))
    if np.shape(found) != leaf.shape:
        raise ArgumentError(
            f"{jax.tree_util.keystr(path)} has shape {np.shape(found)} in this checkpoint, not {leaf.shape}"
        )
    return jax.device_put(np.asarray(found).astype(leaf.dtype, copy=False), leaf.sharding)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(part: Any) -> Any:
    """What a part of a path is called in the file."""
    return next(getattr(part, kind) for kind in ("key", "name", "idx") if hasattr(part, kind))


def _portable(leaf: Any) -> Any:
    """A leaf without JAX; types that numpy has not as tensors over the same memory."""
    if not isinstance(leaf, jax.Array):
        return leaf
    array = np.asarray(leaf)
    kind = _ONLY_TORCH_HAS.get(array.dtype.name)
    if kind is None:
        return array
    return torch.from_numpy(array.view(f"i{array.itemsize}").copy()).view(kind)


def _from_torch(value: Any) -> Any:
    """Those tensors as arrays again."""
    if not isinstance(value, torch.Tensor):
        return value
    bits = value.view({1: torch.int8, 2: torch.int16}[value.itemsize]).numpy()
    return bits.view(str(value.dtype).removeprefix("torch."))
