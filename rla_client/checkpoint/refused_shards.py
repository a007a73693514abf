"""Refusal of tensors that are spread over ranks.

PyTorch pickles a DTensor or a ShardedTensor as this rank's shard, together with this rank's place in the
mesh. A load of such a file on another rank, or on all of them, returns the first rank's shard without an
error, and training continues with wrong weights; so does one with a complete copy on every rank (`Replicate`)
as soon as it is distributed again. A flat parameter of FullyShardedDataParallel is a shard, too, although a
plain parameter. On a mesh of one rank nothing is missing, and all of them are saved like any tensor.

Unmarked shards (the state of an optimizer under FullyShardedDataParallel, the parameters with
`use_orig_params=True`) are plain tensors and cannot be recognized.
"""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ShardedContentError

# where torch has the classes; the second is of before 2.5
_CLASSES = (
    ("torch.distributed.tensor", "DTensor"),
    ("torch.distributed._tensor.api", "DTensor"),
    ("torch.distributed._shard.sharded_tensor.api", "ShardedTensor"),
)
_NAMES = (b"DTensor", b"ShardedTensor", b"_is_flat_param")
WAY_OUT = (
    "exp_manager.save_sharded(state), called on every rank, saves the shards as they are, for any number of "
    "ranks to load by load_sharded(). Or full_state_dict=True gives the whole: get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True, cpu_offload=True)) of torch.distributed.checkpoint."
    "state_dict, get_optimizer_state_dict(...) likewise, called on every rank; tensor.full_tensor() of one "
    "tensor"
)


def sharded_types() -> tuple[type, ...]:
    """Those classes of torch.distributed that this process has loaded: without them there are no objects."""
    loaded = ((sys.modules.get(module), name) for module, name in _CLASSES)
    found = (getattr(module, name, None) for module, name in loaded)
    return tuple(dict.fromkeys(kind for kind in found if isinstance(kind, type)))


def refuse_shard(tensor: Any) -> None:  # noqa: ANN401 - a tensor of any class
    """Refuse to save a tensor of which this rank has only a part.

    Raises:
        ShardedContentError: it is one.
    """
    if getattr(tensor, "_is_flat_param", False):
        kind, shape = "FlatParameter", tensor._unpadded_unsharded_size  # noqa: SLF001 - no other name says it
        several = tensor.numel() < shape.numel()
    else:
        kind, shape, several = type(tensor).__name__, tensor.size(), _is_on_several_ranks(tensor)
    if several:
        what = f"a {kind} of shape {tuple(shape)} on a mesh of several ranks"
        raise ShardedContentError(
            f"this content cannot be saved: it holds {what}, and only this rank's shard would be saved: "
            f"{WAY_OUT}",
            what,
        )


def _is_on_several_ranks(tensor: Any) -> bool:  # noqa: ANN401
    kinds: Any = sharded_types()
    if not isinstance(tensor, kinds):
        return False
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is not None:
        return int(mesh.size()) > 1
    here = sum(shard.tensor.numel() for shard in tensor.local_shards())
    return bool(here < tensor.metadata().size.numel())


def names_shards(path: Path | io.BytesIO) -> bool:
    """Whether the pickle in a `.pt` file names one of the classes; also where it cannot be told."""
    here = path.tell() if isinstance(path, io.BytesIO) else 0
    try:
        with zipfile.ZipFile(path) as file:
            pickles = [file.read(name) for name in file.namelist() if name.endswith("data.pkl")]
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return True
    finally:
        if isinstance(path, io.BytesIO):
            path.seek(here)
    return any(map(pickle_names_shards, pickles))


def pickle_names_shards(content: bytes) -> bool:
    """Whether a pickle names one of the classes."""
    return any(name in content for name in _NAMES)


def not_whole(path: Path | io.BytesIO, what: str) -> ShardedContentError:
    """The error for a file with shards."""
    where = path if isinstance(path, Path) else "this file"
    return ShardedContentError(
        f"{where} is not loaded: it holds one rank's shard of {what}, and training would go on with wrong "
        f"weights. Checkpoints have to be saved whole: {WAY_OUT}",
        what,
    )
