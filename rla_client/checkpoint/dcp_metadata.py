"""The file `.metadata` of torch.distributed.checkpoint.

torch reads it by plain `pickle`, which runs code that the file names. Here the pickle may name only the
classes of such a file.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from rla_client.checkpoint.shard_plan import Placed, SharedPlan
from rla_client.checkpoint.torch_names import torch_module
from rla_client.contract.errors import UntrustedCheckpointError

MAX_METADATA_BYTES: Final = 1 << 30
_VERSION = "1.0.0"  # of the format, as torch numbers it


def make_metadata(plan: SharedPlan, placed: Sequence[Placed]) -> bytes:
    """The `.metadata` of a save.

    Args:
        plan: of all ranks.
        placed: the pieces of all ranks, in the order of ranks.
    """
    torch = torch_module()
    from torch.distributed.checkpoint import filesystem, metadata  # noqa: PLC0415 - slow to import

    described: dict[str, Any] = {}
    where: dict[Any, Any] = {}
    for one in placed:
        piece = one.piece
        if piece.kind == "bytes":
            described[piece.key] = metadata.BytesStorageMetadata()
            index = metadata.MetadataIndex(piece.key)
        else:
            if piece.key not in described:
                described[piece.key] = metadata.TensorStorageMetadata(
                    metadata.TensorProperties(dtype=getattr(torch, piece.dtype)), torch.Size(piece.shape), []
                )
            chunks = described[piece.key].chunks
            index = metadata.MetadataIndex(piece.key, torch.Size(piece.offsets), len(chunks))
            chunk = metadata.ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes))
            chunks.append(chunk)
        where[index] = filesystem._StorageInfo(one.file, one.offset, one.length)  # noqa: SLF001 - the format's
    found = metadata.Metadata(
        described, {key: tuple(path) for key, path in plan.paths.items()}, where, metadata.StorageMeta()
    )
    if hasattr(found, "version"):
        found.version = _VERSION
    return pickle.dumps(found)


def read_metadata(data: bytes, files: Mapping[str, int]) -> Any:  # noqa: ANN401 - torch's Metadata
    """Read a `.metadata` of any origin.

    Args:
        data: its bytes.
        files: name → size of the files that it may refer to.

    Raises:
        UntrustedCheckpointError: it names other classes than those of such files, or other files.
    """
    from torch.distributed.checkpoint import metadata  # noqa: PLC0415 - slow to import

    try:
        found = _MetadataUnpickler(io.BytesIO(data)).load()
    except UntrustedCheckpointError:
        raise
    except Exception as error:  # a pickle from elsewhere can fail in any way
        raise UntrustedCheckpointError(f"the .metadata of a checkpoint cannot be read: {error}") from error
    if not isinstance(found, metadata.Metadata) or not isinstance(found.storage_data, dict):
        raise UntrustedCheckpointError("the .metadata of a checkpoint is not that of a torch checkpoint")
    for info in found.storage_data.values():
        _check_place(info, files)
    return found


def _check_place(info: object, files: Mapping[str, int]) -> None:
    name, offset, length = (getattr(info, field, None) for field in ("relative_path", "offset", "length"))
    inside = isinstance(offset, int) and isinstance(length, int) and isinstance(name, str) and name in files
    if not inside or offset < 0 or length < 0 or offset + length > files[name]:  # type: ignore[operator,index]
        raise UntrustedCheckpointError(
            f"the .metadata of a checkpoint leads to {str(name)[:200]!r}, which is no part of it"
        )
    if getattr(info, "transform_descriptors", None):
        raise UntrustedCheckpointError("a checkpoint whose files are transformed (compressed) is not read")


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickler of the classes of a `.metadata` alone."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        found = _known().get((module, name))
        if found is None and module == "torch" and "." not in name:
            torch = torch_module()
            candidate = getattr(torch, name, None)
            found = candidate if isinstance(candidate, torch.dtype | torch.layout) else None
        if found is None:
            raise UntrustedCheckpointError(
                f"the .metadata of a checkpoint asks for {module[:100]}.{name[:100]}, which runs code or is "
                "not what such a file consists of; it is not loaded"
            )
        return found

    def persistent_load(self, pid: object) -> Any:  # noqa: ANN401
        raise UntrustedCheckpointError(f"the .metadata of a checkpoint asks for {str(pid)[:100]!r}")


@cache
def _known() -> dict[tuple[str, str], Any]:
    torch = torch_module()
    import collections  # noqa: PLC0415
    import pathlib  # noqa: PLC0415

    from torch.distributed.checkpoint import filesystem, metadata  # noqa: PLC0415

    names = (
        "Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
        "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING",
    )  # fmt: skip
    found = {(metadata.__name__, name): getattr(metadata, name) for name in names}
    found[filesystem.__name__, "_StorageInfo"] = filesystem._StorageInfo  # noqa: SLF001
    found["torch", "Size"] = torch.Size
    found["torch.serialization", "_get_layout"] = _layout  # how a layout is pickled
    found["collections", "OrderedDict"] = collections.OrderedDict
    for name in ("PosixPath", "PurePosixPath"):  # StorageMeta.checkpoint_id of stock writers
        found["pathlib", name] = found["pathlib._local", name] = pathlib.PurePosixPath
    return found


def _layout(name: object) -> Any:  # noqa: ANN401
    found = getattr(torch_module(), str(name).removeprefix("torch."), None)
    if not isinstance(found, torch_module().layout):
        raise UntrustedCheckpointError(f"the .metadata of a checkpoint names the layout {str(name)[:100]!r}")
    return found
