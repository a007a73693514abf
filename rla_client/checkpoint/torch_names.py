"""Torch's classes or dtypes by their names in pickles."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from rla_client.contract.errors import extra

_NEW_KINDS = ("uint16", "uint32", "uint64")  # dtypes of torch without a storage class
# dtypes whose storages have had a class of their own since the first torch; newer ones go by bytes
_REAL_STORAGE_CLASSES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage",
    "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
}  # fmt: skip
_QUANTIZED_STORAGE_CLASSES = {
    "quint8": "QUInt8Storage", "qint8": "QInt8Storage", "qint32": "QInt32Storage",
    "quint4x2": "QUInt4x2Storage", "quint2x4": "QUInt2x4Storage",
}  # fmt: skip
_COMPLEX_STORAGE_CLASSES = {"complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage"}
STORAGE_CLASSES = _REAL_STORAGE_CLASSES | _COMPLEX_STORAGE_CLASSES
NUMPY_STORAGE_CLASSES = {name: kind for name, kind in STORAGE_CLASSES.items() if name != "bfloat16"}


def torch_module() -> ModuleType:
    """The torch package, imported at first use.

    Raises:
        MissingExtraError: it is not installed.
    """
    with extra("torch", "a checkpoint"):
        return importlib.import_module("torch")  # 1 s, and only who saves tensors has it


class TorchNames:
    """The installed torch's names for the parts of a `.pt` file, looked up once."""

    def __init__(self) -> None:
        torch = torch_module()
        self.tensor = torch.Tensor
        self.parameter = torch.nn.Parameter
        self.strided = torch.strided
        self.storage_classes = _by_dtype(torch, STORAGE_CLASSES)
        self.typed_classes = _by_dtype(torch, STORAGE_CLASSES | _QUANTIZED_STORAGE_CLASSES)
        self.complex_dtypes = frozenset(getattr(torch, dtype) for dtype in _COMPLEX_STORAGE_CLASSES)
        self.rebuild_tensor = torch._utils._rebuild_tensor_v2  # noqa: SLF001 - the name is in every .pt file
        self.rebuild_new = torch._utils._rebuild_tensor_v3  # noqa: SLF001 - of dtypes without a storage class
        self.rebuild_parameter = torch._utils._rebuild_parameter  # noqa: SLF001
        self.rebuild_from_type = torch._tensor._rebuild_from_type_v2  # noqa: SLF001
        self.typed_storage = torch.storage.TypedStorage
        self.is_storage = torch.is_storage
        self.location_tag = torch.serialization.location_tag
        self.byte_storage = torch.serialization.normalize_storage_type(torch.UntypedStorage)
        self.byte_kinds = frozenset((self.byte_storage, torch.ByteStorage))  # two names of one type
        self.leaf_types: tuple[type, ...] = (torch.Size, torch.dtype, torch.device)
        self.leaf_exceptions: tuple[type, ...] = ()
        self.array: Any = None
        self.scalar: Any = None
        self.array_kinds: dict[str, Any] = {}  # by numpy's spelling of a dtype in native byte order
        self.new_array_kinds: dict[str, Any] = {}  # the same of those without a storage class: torch's dtypes
        with suppress(ImportError):  # torch works without
            import numpy as np  # noqa: PLC0415

            self.array, self.as_array = np.ndarray, np.asarray
            for dtype, name in NUMPY_STORAGE_CLASSES.items():
                self.array_kinds[np.dtype(dtype).str] = getattr(torch, name)
            for dtype in _NEW_KINDS:
                if hasattr(torch, dtype):
                    self.new_array_kinds[np.dtype(dtype).str] = getattr(torch, dtype)
            self.scalar, self.zeros = np.generic, np.zeros
            self.leaf_exceptions = (np.object_, np.void)


@cache
def torch_names() -> TorchNames:
    """The names of the torch that is installed."""
    return TorchNames()


def _by_dtype(torch: ModuleType, names: dict[str, str]) -> dict[Any, Any]:
    return {getattr(torch, dtype): getattr(torch, name) for dtype, name in names.items()}
