"""Each odd kind of tensor and object: what we write loads to what torch.save's file loads to."""

from __future__ import annotations

import ctypes
import gc
import io
import pickle
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla_client.checkpoint import pickling  # noqa: E402
from rla_client.checkpoint.loading import restore  # noqa: E402
from rla_client.checkpoint.pickling import Unusual, capture, capture_generally, capture_plain  # noqa: E402
from rla_client.checkpoint.storage_copy import copy_storages  # noqa: E402
from rla_client.checkpoint.storage_table import Captured, StorageTable  # noqa: E402
from rla_client.contract.errors import ArgumentError  # noqa: E402


class Named(torch.Tensor):  # type: ignore[misc,name-defined]
    """A subclass."""


def with_attribute() -> Any:
    tensor = torch.ones(3)
    tensor.note = "kept"
    return tensor


def with_hook() -> Any:
    tensor = torch.ones(3, requires_grad=True)
    tensor.register_hook(lambda grad: grad)
    return tensor


def recursive() -> Any:
    inner: list[Any] = [torch.ones(2)]
    outer = (inner, 1)
    inner.append(outer)
    return outer


KINDS: dict[str, Callable[[], Any]] = {
    "expanded": lambda: torch.rand(3, 1).expand(3, 4),
    "offset": lambda: torch.arange(10.0)[3:7],
    "scalar": lambda: torch.tensor(5),
    "empty": lambda: torch.empty(0, 3),
    "channels last": lambda: torch.rand(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "sparse csr": lambda: torch.eye(3).to_sparse_csr(),
    "sparse coo": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.empty(3, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.rand(4), 0.1, 2, torch.quint8),
    "per channel": lambda: torch.quantize_per_channel(
        torch.rand(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.qint8
    ),
    "float8": lambda: torch.rand(4).to(torch.float8_e5m2),
    "subclass": lambda: torch.rand(3).as_subclass(Named),
    "attribute": with_attribute,
    "hook": with_hook,
    "parameter": lambda: torch.nn.Parameter(torch.rand(2), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.rand(2)),
    "typed storage": lambda: torch.rand(3).storage(),
    "untyped storage": lambda: torch.rand(3).untyped_storage(),
    "counter": lambda: Counter("aab"),
    "ordered with state": lambda: torch.nn.BatchNorm1d(3).state_dict(),
    "module": lambda: torch.nn.GRU(2, 3),
    "generator": lambda: torch.Generator().manual_seed(3).get_state(),
    "recursive": recursive,
    "set": lambda: {1, 2},
    "big": lambda: [1 << 2000, -(1 << 2100), 255, 256, -1, 1 << 31, -(1 << 31)],
    "text": lambda: ["", "é" * 300, "\ud800"],
}


def through(captured: Captured) -> Any:
    memory = [ctypes.create_string_buffer(max(size, 1)) for size in captured.sizes]
    addresses = [ctypes.addressof(buffer) for buffer in memory]
    copy_storages(captured.storages, addresses)
    return restore(captured.skeleton, lambda key, size: bytearray(memory[key].raw[:size]))


def by_torch(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def told(value: Any) -> str:
    """Everything visible about a value."""
    if isinstance(value, torch.nn.Module):
        return repr(value) + told(value.state_dict())
    if isinstance(value, OrderedDict):
        return f"{type(value)} {[(key, told(item)) for key, item in value.items()]} {vars(value)}"
    if isinstance(value, torch.Tensor):
        extra = {key: item for key, item in vars(value).items() if key != "_backward_hooks"}
        layout = (value.stride(), value.storage_offset()) if value.layout is torch.strided else ()
        shape = tuple(value.shape)
        return f"{type(value)} {value.dtype} {shape} {layout} {value.requires_grad} {extra} {value!r}"
    if isinstance(value, torch.UntypedStorage | torch.TypedStorage):
        return f"{type(value)} {list(value)}"
    return repr(value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("take", [capture, capture_generally])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_loads_as_from_torch(kind: str, take: Any) -> None:
    torch.manual_seed(1)
    content = {"it": KINDS[kind]()}
    assert told(through(take(content))["it"]) == told(by_torch(content)["it"])


def test_shared_objects_stay_shared() -> None:
    tensor, text = torch.rand(3), "t" * 100
    inner = {"x": tensor}
    content = [inner, inner, tensor, tensor.view(1, 3), text, text, (tensor,), torch.nn.Parameter(tensor)]
    for take in (capture, capture_generally):
        captured = take(content)
        assert captured.sizes == [12]
        one, two, three, view, first, second, (four,), parameter = through(captured)
        assert one is two
        assert one["x"] is three is four
        assert first is second
        assert view.data_ptr() == parameter.data_ptr() == three.data_ptr()
        three.zero_()
        assert not view.any()


@pytest.mark.slow
def test_the_fast_way_is_taken_for_what_training_saves() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    capture_plain(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict()["last_epoch"],
            "rng": torch.get_rng_state(),
            "raw": dict(model.named_parameters()),
        }
    )
    with pytest.raises(Unusual):
        capture_plain(range(2))


def test_the_skeleton_is_as_small_as_torchs() -> None:
    state = {f"layers.{i}.weight": torch.rand(2, 2) for i in range(300)}
    file = io.BytesIO()
    torch.save(state, file)
    assert len(capture(state).skeleton) < 1.3 * len(capture_generally(state).skeleton)


def test_a_deep_tree_is_an_argument_error_or_saved_but_never_a_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentError):
        capture(deep)


def test_bytes_may_be_seen_as_uint8_and_as_a_type_that_goes_by_bytes() -> None:
    packed = torch.arange(6, dtype=torch.uint8)
    content = [packed, packed.view(torch.float8_e4m3fn), packed.untyped_storage()]
    for take in (capture, capture_generally):
        captured = take(content)
        assert captured.sizes == [6]
        assert told(through(captured)) == told(by_torch(content))


def _from_the_middle(error: Exception) -> object:
    class Raises:
        def __reduce__(self) -> Any:
            raise error

    return Raises()


@pytest.mark.parametrize(
    "content",
    [
        lambda: torch.empty(3, device="meta").untyped_storage(),
        lambda: torch._efficientzerotensor(3),
        lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2)),
        lambda: _from_the_middle(RuntimeError("dictionary changed size during iteration")),
    ],
)
def test_what_torch_refuses_is_an_argument_error(content: Any) -> None:
    for take in (content(), {"it": [content()]}):
        with pytest.raises(ArgumentError):
            capture(take)


def test_what_a_signal_handler_raises_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class PreemptedError(RuntimeError):
        pass

    class Interrupted(StorageTable):
        def note(self, *_: Any, **__: Any) -> int:
            raise PreemptedError

    with pytest.raises(PreemptedError):
        capture(_from_the_middle(PreemptedError()))
    monkeypatch.setattr(pickling, "StorageTable", Interrupted)
    with pytest.raises(PreemptedError):
        capture([torch.rand(2)])


def test_nothing_holds_the_content_once_it_is_copied() -> None:
    """Else each checkpoint would stay in memory until the next collection."""
    tensor, special = torch.rand(2), torch.rand(2).as_subclass(Named)
    gone = [weakref.ref(tensor), weakref.ref(special)]
    gc.disable()
    try:
        capture({"plain": tensor})
        capture([tensor, special])
        del tensor, special
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()


def test_garbage_collection_is_on_again_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ArgumentError):
        capture([lambda: 1])
    assert gc.isenabled()
    gc.disable()
    try:
        capture([1])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_plain_pickles_read_what_holds_no_tensors() -> None:
    content = {"a": [1, 2.5, None, True, "x", b"bytes", 1 + 2j], "b": {"c": ()}, "d": OrderedDict(x=1)}
    assert pickle.loads(capture(content).skeleton) == content


@pytest.mark.parametrize("count", [1, 3, 200])
def test_large_copies_by_several_threads_are_exact(count: int) -> None:
    storages = [torch.randint(0, 256, (24_000_001 // count,), dtype=torch.uint8) for _ in range(count)]
    for one, two in zip(storages, through(capture(storages)), strict=True):
        assert torch.equal(one, two)
