"""Any state dict: captured, copied into shared memory, written by the agent's code, loaded by torch alone."""

from __future__ import annotations

import ctypes
import io
import math
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rla_agent.jobs.checkpoint_job import run_checkpoint  # noqa: E402
from rla_agent.jobs.outcome import JobOutcome  # noqa: E402
from rla_client.checkpoint.loading import load_file, restore  # noqa: E402
from rla_client.checkpoint.numpy_marks import as_numpy  # noqa: E402
from rla_client.checkpoint.pickling import capture, capture_generally  # noqa: E402
from rla_client.checkpoint.storage_copy import copy_storages  # noqa: E402
from rla_client.checkpoint.storage_table import Captured  # noqa: E402
from rla_client.contract.checkpoint.checkpoint_retention import Retention  # noqa: E402
from rla_client.contract.checkpoint.stamp import Stamp  # noqa: E402
from rla_client.contract.job.arena_layout import SLOT_BUSY  # noqa: E402
from rla_client.contract.job.checkpoint_job import CheckpointJob  # noqa: E402
from rla_client.contract.job.job_source import ArenaSource, storage_offsets  # noqa: E402
from rla_client.stream.arena import Arena, create_arena  # noqa: E402

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
]  # fmt: skip
ARRAY_DTYPES = ["f4", "f8", "f2", "i8", "i4", "u1", "?", "c8", "u4", "<U3", ">f4", "M8[s]"]


def bits(tensor: Any) -> bytes:
    """The values of a tensor as bytes, whatever its strides."""
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    flat = torch.empty(plain.numel(), dtype=plain.dtype).copy_(plain)
    return flat.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


@st.composite
def tensors(draw: Any, pool: list[Any]) -> Any:
    """A tensor with random bits: fresh, or a view of one drawn before."""
    if pool and draw(st.booleans()):
        base = pool[draw(st.integers(0, len(pool) - 1))]
        how = draw(st.sampled_from(["same", "detach", "transpose", "slice", "reshape", "empty"]))
        if how == "same" or base.dim() == 0 or base.layout is not torch.strided:
            return base
        return {
            "detach": base.detach,
            "transpose": lambda: base.t() if base.dim() == 2 else base,
            "slice": lambda: base[::2],
            "reshape": lambda: base.reshape(-1),
            "empty": lambda: base[:0],
        }[how]()
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    size = torch.empty(0, dtype=dtype).element_size() * math.prod(shape)
    raw = np.random.default_rng(draw(st.integers(0, 1 << 32))).integers(0, 256, size, dtype=np.uint8)
    if dtype is torch.bool:
        raw &= 1
    tensor = torch.from_numpy(raw).view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    if dtype.is_floating_point and tensor.element_size() > 1 and draw(st.booleans()):
        tensor.requires_grad_()
        if draw(st.booleans()):
            tensor = torch.nn.Parameter(tensor.detach())
    elif dtype.is_complex and draw(st.booleans()):
        tensor = tensor.conj() if draw(st.booleans()) else tensor.conj().imag
    elif dtype is torch.float32 and draw(st.booleans()):
        tensor = torch.nan_to_num(tensor).reshape(-1).to_sparse()
    pool.append(tensor)
    return tensor


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array in C, Fortran or no order, sometimes of a dtype that torch does not have."""
    dtype = np.dtype(draw(st.sampled_from(ARRAY_DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    if dtype.kind == "U":
        return np.full(shape, draw(st.text("ab", max_size=3)), dtype)
    raw = np.random.default_rng(draw(st.integers(0, 1 << 32))).integers(
        0, 2, math.prod(shape) * dtype.itemsize, dtype=np.uint8
    )
    array = np.frombuffer(raw.tobytes(), dtype).reshape(shape)
    return draw(st.sampled_from([array, np.asfortranarray(array), array[::-1] if array.ndim else array]))


def leaves() -> st.SearchStrategy[Any]:
    """Plain data."""
    return st.one_of(
        st.none(), st.booleans(), st.integers(-(1 << 80), 1 << 80), st.floats(), st.text(max_size=80),
        st.binary(max_size=8), st.complex_numbers(),
        st.floats().map(np.float64), st.integers(0, 9).map(np.int32),
        st.just(torch.float32), st.just(torch.device("cpu")), st.just(torch.Size([1, 2])),
    )  # fmt: skip


@st.composite
def contents(draw: st.DrawFn) -> Any:
    """Nested containers of tensors, arrays and plain data, with objects that occur twice."""
    pool: list[Any] = []
    keys = st.one_of(st.text(max_size=6), st.integers(-5, 70_000), st.tuples(st.integers(0, 3)))
    tree = st.recursive(
        st.one_of(tensors(pool), arrays(), leaves()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(keys, inner, max_size=4),
            st.dictionaries(keys, inner, max_size=4).map(OrderedDict),
            inner.map(lambda value: [value, value]),
        ),
        max_leaves=12,
    )
    return draw(st.dictionaries(st.text(max_size=10), tree, max_size=6))


def assert_same(one: Any, other: Any, seen: dict[int, int]) -> None:
    """Equal types, values to the last bit, and the same objects and storages shared."""
    assert type(one) is type(other)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right, seen)
    elif isinstance(one, dict):
        assert_same(list(one), list(other), seen)
        for left, right in zip(one.values(), other.values(), strict=True):
            assert_same(left, right, seen)
    elif isinstance(one, torch.Tensor):
        assert_same_tensor(one, other, seen)
    elif isinstance(one, np.ndarray):
        assert one.shape == other.shape
        if not one.dtype.isnative:  # numpy itself loads these in native order
            one = one.astype(one.dtype.newbyteorder("="))
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, float | complex):
        assert repr(one) == repr(other)
    else:
        assert one == other


def assert_same_tensor(one: Any, other: Any, seen: dict[int, int]) -> None:
    assert (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout)
    assert one.requires_grad == other.requires_grad
    assert seen.setdefault(id(one), id(other)) == id(other)
    if one.layout is not torch.strided:
        assert_same_tensor(one._indices(), other._indices(), {})
        assert_same_tensor(one._values(), other._values(), {})
        return
    assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
    assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
    assert bits(one) == bits(other)
    ours, theirs = one.untyped_storage(), other.untyped_storage()
    assert ours.nbytes() == theirs.nbytes()
    if ours.nbytes():
        assert seen.setdefault(-ours.data_ptr(), theirs.data_ptr()) == theirs.data_ptr()


def needs_numpy(value: Any) -> bool:
    """True for what plain `weights_only=True` may refuse, from torch.save as well as from us."""
    if isinstance(value, dict):
        return any(map(needs_numpy, value.values()))
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return any(map(needs_numpy, value))
    return isinstance(value, np.ndarray | np.generic) or (isinstance(value, bytes) and not value)


def write(captured: Captured, arena: Arena, stream: Path, folder: Path) -> Path:
    """What save and the agent do, in one process."""
    offsets, needed = storage_offsets(len(captured.skeleton), captured.sizes)
    assert needed <= arena.slot_bytes
    arena.mark(0, SLOT_BUSY, 7)
    base = arena.slot_address(0)
    ctypes.memset(base, 0xEE, arena.slot_bytes)  # what was not copied shows
    ctypes.memmove(base, captured.skeleton, len(captured.skeleton))
    copy_storages(captured.storages, [base + offset for offset in offsets])
    stamp = Stamp(secrets.token_hex(8), 1, "run", "checkpoint", 5, {})
    source = ArenaSource(arena.name, 0, 7, len(captured.skeleton), tuple(captured.sizes))
    job = CheckpointJob.decode(CheckpointJob(stamp, source, Retention()).encode())
    final = folder / job.final_name
    result = run_checkpoint(job, stream / "blobs", final)
    assert result.outcome is JobOutcome.WRITTEN, result
    return final


@pytest.mark.slow
@pytest.mark.parametrize(("take", "examples"), [(capture, 200), (capture_generally, 60)])
def test_random_state_dicts_come_back_bit_for_bit(take: Any, examples: int, tmp_path: Path) -> None:
    stream = tmp_path / "spool" / "stream"
    arena = create_arena(stream, 1 << 20)
    assert arena is not None

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(contents())
    def one(content: Any) -> None:
        original = torch.load(_saved(content), weights_only=False)
        captured = take(content)
        final = write(captured, arena, stream, tmp_path)
        assert_same(content, load_file(final), {})
        for mmap in (False, True):
            assert_same(content, as_numpy(torch.load(final, weights_only=False, mmap=mmap)), {})
            if not needs_numpy(content):
                assert_same(content, as_numpy(torch.load(final, weights_only=True, mmap=mmap)), {})
        base = arena.slot_address(0)
        offsets, _ = storage_offsets(len(captured.skeleton), captured.sizes)

        def bytes_of(key: int, size: int) -> bytearray:
            return bytearray(ctypes.string_at(base + offsets[key], size))

        assert_same(content, restore(captured.skeleton, bytes_of), {})
        assert_same(original, load_file(final), {})

    try:
        one()
    finally:
        arena.close(unlink=True)


def _saved(content: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return file
