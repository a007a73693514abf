"""Training state as cloudpickle bytes, taken with one copy of the tensors.

A snapshot file is one pickle (protocol 5) that `cloudpickle.load` reads. The pickler writes large
buffers straight from the arrays and tensors into the target, so the training step waits for
about one copy of the state. Storages of plain CPU tensors are written as buffers, and tensors
that share a storage share it again after loading; other tensors (CUDA, sparse, quantised) take
torch's own way.

Behind the pickle, where `cloudpickle.load` does not look, lies a footer: a JSON object, its length
in bytes (4, little endian) and the magic `rlaS`. It says what a resume has to know before it
loads: {"itr", "rows", ...}.

Classes and functions of the launcher's own file (`__main__`) travel by name and by value: where
the same file runs when the snapshot is loaded, its own are used, with its globals, so that a
resumed launcher and its restored objects share them; elsewhere they are made from the value.
"""

from __future__ import annotations

import gc
import io
import json
import mmap
import os
import pickle
import struct
import sys
import types
from typing import Any, BinaryIO

import cloudpickle

from rla_client.errors import SnapshotError

PROTOCOL = 5
FOOTER = struct.Struct("<I4s")
FOOTER_MAGIC = b"rlaS"
FOOTER_MAX_BYTES = 1 << 20  # numbers and short texts only; anything longer is no footer of ours
FIRST_BYTES = 1 << 16
SPARE = 1.125  # room for a state that grows, so that the next snapshot needs no new pages


class CopyTarget:
    """A file for the pickler: it collects written bytes in memory that is mapped once and kept."""

    def __init__(self) -> None:
        # private: a shared anonymous map that is resized ends the process with SIGBUS
        self._memory = mmap.mmap(-1, FIRST_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = 0

    def rewind(self) -> None:
        """Begin again; the memory stays."""
        self.size = 0

    def write(self, data: Any) -> int:  # noqa: ANN401 - any bytes-like object
        """Copy `data` behind what is there."""
        source = memoryview(data)
        end = self.size + source.nbytes
        if end > len(self._memory):
            self._memory.resize(max(int(end * SPARE), 2 * len(self._memory)))  # moves pages, copies nothing
        self._memory[self.size : end] = source
        self.size = end
        return source.nbytes

    def write_to(self, file: BinaryIO) -> None:
        """Write what was collected into `file`."""
        with memoryview(self._memory) as whole, whole[: self.size] as content:
            file.write(content)

    def to_bytes(self) -> bytes:
        """What was collected."""
        return self._memory[: self.size]


def encode(state: dict[str, Any], target: CopyTarget) -> None:
    """Pickle `state` into `target`. What `state` refers to may change afterwards.

    Raises:
        SnapshotError: something in it cannot be pickled; the message names it.
    """
    target.rewind()
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle walks every object that was just made
    try:
        _Pickler(target, protocol=PROTOCOL).dump(state)
    except Exception as error:  # any user object may raise anything from its __reduce__
        raise SnapshotError(_why(state, error)) from error
    finally:
        if collecting:
            gc.enable()


def decode(data: bytes) -> Any:  # noqa: ANN401 - what the user put in
    """Unpickle a snapshot. Runs code from it: only for files of the user's own."""
    return cloudpickle.load(io.BytesIO(data))


def write_footer(target: CopyTarget, note: dict[str, Any]) -> None:
    """Put `note` (plain data) behind the pickle."""
    text = json.dumps(note).encode()
    target.write(text + FOOTER.pack(len(text), FOOTER_MAGIC))


def read_footer(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note behind a snapshot's pickle, without loading the pickle; empty when it has none."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < FOOTER.size:
            return {}
        file.seek(size - FOOTER.size)
        length, magic = FOOTER.unpack(file.read())
        if magic != FOOTER_MAGIC or length > min(FOOTER_MAX_BYTES, size - FOOTER.size):
            return {}
        file.seek(size - FOOTER.size - length)
        note = json.loads(file.read(length))
    return note if isinstance(note, dict) else {}


def rebuild_storage(data: bytearray) -> Any:  # noqa: ANN401 - torch is imported here only
    """Named by snapshots: a CPU storage over the loaded bytes."""
    import torch  # noqa: PLC0415

    if not data:
        return torch.UntypedStorage(0)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


def rebuild_tensor(storage: Any, dtype: Any, place: tuple[Any, ...], requires_grad: bool) -> Any:  # noqa: ANN401
    """Named by snapshots: a CPU tensor at `place` (offset, size, stride) of a storage."""
    import torch  # noqa: PLC0415

    tensor = torch.empty(0, dtype=dtype).set_(storage, *place)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def rebuild_parameter(storage: Any, dtype: Any, place: tuple[Any, ...], requires_grad: bool) -> Any:  # noqa: ANN401
    """Named by snapshots: a parameter, likewise."""
    import torch  # noqa: PLC0415

    return torch.nn.Parameter(rebuild_tensor(storage, dtype, place, False), requires_grad)


def rebuild_typed_storage(storage: Any, dtype: Any) -> Any:  # noqa: ANN401
    """Named by snapshots: torch's typed view of a storage."""
    import torch  # noqa: PLC0415

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def resolve_main(name: str, file: str, value: bytes) -> Any:  # noqa: ANN401
    """Named by snapshots: a class or function of the launcher, its own if that file runs here."""
    main = sys.modules.get("__main__")
    if _main_file(main) == file:
        found = _find_in(main, name)
        if found is not None:
            return found
    return cloudpickle.loads(value)


def _main_file(main: object) -> str:
    return os.path.realpath(getattr(main, "__file__", None) or "")


def _find_in(main: object, name: str) -> Any:  # noqa: ANN401 - class or function
    found = main
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _reduce_main(obj: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
    if getattr(obj, "__module__", None) != "__main__":
        return None
    main = sys.modules.get("__main__")
    name = obj.__qualname__
    if getattr(main, "__file__", None) is None or _find_in(main, name) is not obj:
        return None  # an interactive session, a lambda, something made inside a function
    return resolve_main, (name, _main_file(main), cloudpickle.dumps(obj))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **options)
        self._torch = sys.modules.get("torch")
        self.kept: list[Any] = []  # alive until the end: the memo goes by identity

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        if isinstance(obj, (type, types.FunctionType)):
            by_name = _reduce_main(obj)
            if by_name is not None:
                return by_name
        elif self._torch is not None:
            storage = self._reduce_storage(self._torch, obj)
            if storage is not None:
                return storage
        return super().reducer_override(obj)

    def _reduce_storage(self, torch: Any, obj: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
        if type(obj) is torch.Tensor:
            return self._reduce_tensor(torch, obj, rebuild_tensor)
        if type(obj) is torch.nn.Parameter:
            return self._reduce_tensor(torch, obj, rebuild_parameter)
        if type(obj) is torch.storage.TypedStorage:
            storage = obj._untyped_storage  # noqa: SLF001 - `untyped()` and `device` warn
            if storage.device.type == "cpu":
                self.kept.append(storage)
                return rebuild_typed_storage, (storage, obj.dtype)
        if type(obj) is torch.UntypedStorage and obj.device.type == "cpu":
            flat = torch.empty(0, dtype=torch.uint8).set_(obj).numpy()
            return rebuild_storage, (pickle.PickleBuffer(flat),)
        return None

    def _reduce_tensor(self, torch: Any, obj: Any, rebuild: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
        plain = obj.layout is torch.strided and obj.device.type == "cpu" and not obj.is_quantized
        if not plain or obj.is_conj() or obj.is_neg() or obj._backward_hooks or obj.__dict__:  # noqa: SLF001
            return None
        storage = obj.untyped_storage()
        self.kept.append(storage)
        place = (obj.storage_offset(), obj.size(), obj.stride())
        return rebuild, (storage, obj.dtype, (place[0], tuple(place[1]), place[2]), obj.requires_grad)


def _why(state: dict[str, Any], error: Exception) -> str:
    culprits = [key for key, value in state.items() if not _can_pickle(value)]
    where = f" in {', '.join(culprits)}" if culprits else ""
    return (
        f"the training state cannot be pickled{where}: {type(error).__name__}: {error}. "
        "Leave such an attribute out in the object's __getstate__ and make it anew in __setstate__."
    )


def _can_pickle(value: object) -> bool:
    try:
        _Pickler(CopyTarget(), protocol=PROTOCOL).dump(value)
    except Exception:  # noqa: BLE001 - the question is whether any error occurs
        return False
    return True
