"""Arrays in a `.pt` file, without torch.

Custom data of a run may have arrays where torch is not installed, and importing it for them would cost a
second. So the format of torch.load is written and read by hand: torch's zip of stored records, with a pickle
of `{name: tensor}` whose few opcodes are the same for every array. The reader accepts these opcodes alone.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.torch_names import NUMPY_STORAGE_CLASSES
from rla_client.contract.checkpoint.torch_zip import TORCH_FORMAT, TorchZip

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ARRAY_TYPES = {storage: name for name, storage in NUMPY_STORAGE_CLASSES.items()}
_INT32 = 1 << 31
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
)  # of zipfile; the last: encrypted


def torch_array(array: NDArray[Any]) -> NDArray[Any]:
    """An array of native byte order and of a type that torch has, else of the nearest such.

    Unsigned numbers of more than 8 bits become signed ones of the same bits.
    """
    import numpy as np  # noqa: PLC0415 - whoever has an array has it

    if array.dtype.name in NUMPY_STORAGE_CLASSES and array.dtype.isnative:
        return np.ascontiguousarray(array).reshape(array.shape)
    kind = array.dtype.kind
    if kind == "u":
        native = array.astype(array.dtype.newbyteorder("="))
        return native.view(f"int{8 * array.dtype.itemsize}")
    if array.dtype.newbyteorder("=").name in NUMPY_STORAGE_CLASSES:
        return array.astype(array.dtype.newbyteorder("="))
    return array.astype("complex128" if kind == "c" else "float64")


def encode_arrays(arrays: Mapping[str, Any]) -> bytes:
    """The file of arrays that are `torch_array`."""
    import numpy as np  # noqa: PLC0415

    buffer = io.BytesIO()
    kept = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays.values()]
    entries = b"".join(
        _text_op(name.encode("utf-8", "surrogatepass")) + _tensor(number, array)
        for number, (name, array) in enumerate(zip(arrays, kept, strict=True))
    )
    with TorchZip(buffer) as file:
        for record, data in (
            ("data.pkl", b"\x80\x02}(" + entries + b"u."),
            ("byteorder", sys.byteorder.encode()),
            *((f"data/{number}", array.tobytes()) for number, array in enumerate(kept)),
            ("version", TORCH_FORMAT),
        ):
            file.add(record, len(data), [data])
    return buffer.getvalue()


def _tensor(number: int, array: NDArray[Any]) -> bytes:
    """Pickle opcodes of one tensor of storage `number`."""
    strides = tuple(step // array.itemsize for step in array.strides) if array.size else _strides(array.shape)
    storage = (
        b"((" + _text_op(b"storage") + b"ctorch\n" + NUMPY_STORAGE_CLASSES[array.dtype.name].encode() + b"\n"
        + _text_op(b"%d" % number) + _text_op(b"cpu") + _int_op(array.size) + b"tQ"
    )  # fmt: skip
    view = _int_op(0) + _tuple_op(array.shape) + _tuple_op(strides) + b"\x89"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + view + b"ccollections\nOrderedDict\n)RtR"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(side, 1) for side in shape[at + 1 :]) for at in range(len(shape)))


def _text_op(data: bytes) -> bytes:
    """BINUNICODE of UTF-8 bytes."""
    return struct.pack("<cI", b"X", len(data)) + data


def _int_op(value: int) -> bytes:
    """BININT or LONG1, of which weights_only reads both."""
    if -_INT32 <= value < _INT32:
        return struct.pack("<ci", b"J", value)
    data = pickle.encode_long(value)
    return b"\x8a%c" % len(data) + data


def _tuple_op(values: tuple[int, ...]) -> bytes:
    return b"(%bt" % b"".join(map(_int_op, values))


def decode_arrays(data: bytes) -> dict[str, Any]:
    """The arrays of a file, also of plain tensors written by torch.

    Raises:
        ValueError: it is no such file, or holds something else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            top = next(name for name in file.namelist() if name.endswith("/data.pkl"))[: -len("/data.pkl")]
            found = _ArrayReader(file, top).load()
    except (
        *_DAMAGED,
        pickle.UnpicklingError,
        StopIteration,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise ValueError(f"no file of arrays: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("no file of arrays: it holds no dict")  # noqa: TRY004 - as for any other content
    return found


class _ArrayReader(pickle.Unpickler):
    def __init__(self, file: zipfile.ZipFile, top: str) -> None:
        super().__init__(io.BytesIO(file.read(f"{top}/data.pkl")))
        self._file = file
        self._top = top

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _ARRAY_TYPES:
            return _ARRAY_TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not read without torch")

    def persistent_load(self, pid: Any) -> NDArray[Any]:  # noqa: ANN401
        import numpy as np  # noqa: PLC0415

        _, dtype, key, _, _ = pid
        return np.frombuffer(bytearray(self._file.read(f"{self._top}/data/{int(key)}")), dtype)


def _rebuild(
    storage: NDArray[Any], offset: int, shape: Sequence[int], strides: Sequence[int], *_: object
) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415

    if any(side < 0 for side in (offset, *shape, *strides)):
        raise pickle.UnpicklingError("a tensor of negative size")
    last = offset + sum((side - 1) * step for side, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.size:
        raise pickle.UnpicklingError("a tensor beyond its storage")
    if not math.prod(shape):
        return np.empty(tuple(shape), storage.dtype)
    steps = tuple(step * storage.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps)
