"""The pieces of a state, and the copy of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla_client.checkpoint.shard_capture import CopyBuffer, StateReader, _new_memory, len_in_file  # noqa: E402
from rla_client.checkpoint.shard_plan import PieceKey  # noqa: E402
from rla_client.contract.errors import ArgumentError  # noqa: E402


def test_pieces_of_a_nested_state() -> None:
    state = {"m": {"w": torch.ones(2, 3), "list": [1, {"t": torch.zeros(())}]}, "n": "text"}
    local = StateReader().read(state)
    kinds = {piece.key: piece.kind for piece in local.plan.pieces}
    assert kinds == {"m.w": "tensor", "m.list.0": "bytes", "m.list.1.t": "tensor", "n": "bytes"}
    assert local.plan.paths["m.list.1.t"] == ("m", "list", 1, "t")
    assert local.objects[PieceKey("n", ())] == "text"
    assert local.tensors[PieceKey("m.w", (0, 0))].data_ptr() == state["m"]["w"].data_ptr()  # type: ignore[index]


def test_a_module_stands_for_its_state() -> None:
    layer = torch.nn.Linear(2, 2)
    assert [piece.key for piece in StateReader().read({"m": layer}).plan.pieces] == ["m.weight", "m.bias"]


def test_the_plan_is_made_again_only_where_the_state_differs() -> None:
    reader = StateReader()
    first = reader.read({"w": torch.ones(2), "n": 1}).plan
    assert reader.read({"w": torch.zeros(2), "n": 2}).plan is first
    for other in (
        {"w": torch.ones(3), "n": 1}, {"w": torch.ones(2)}, {"w": torch.ones(2).half(), "n": 1},
        {"n": 1, "w": 2}, {"w": torch.ones(2), "n": "1"},
    ):  # fmt: skip
        assert reader.read(other).plan is not first
    assert reader.read({"w": torch.ones(2), "n": 1}).plan == first


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).t(), torch.arange(20)[::3],
        torch.tensor(3.5), torch.empty(0, 4), torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.bool), torch.tensor([1 + 2j, 3j]).conj(), torch.ones(1, 5).expand(4, 5),
        torch.nn.Parameter(torch.ones(2)), torch.ones(7, dtype=torch.float8_e4m3fn),
    ],
)  # fmt: skip
def test_the_copy_is_that_of_the_moment(tensor: Any) -> None:
    local = StateReader().read({"t": tensor, "other": torch.ones(1000)})
    buffer, (key, other) = CopyBuffer(), local.tensors
    buffer.fill(local.tensors, {key})
    expected = tensor.detach().clone().resolve_conj().contiguous()
    found = buffer.bytes_of(key)
    assert found is not None
    assert bytes(found) == bytes(expected.view(-1).view(torch.uint8).tolist())
    assert buffer.bytes_of(other) is None


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))],
)
def test_a_buffer_is_used_again(device: str) -> None:
    buffer = CopyBuffer()
    for size in (10, 1 << 20, 5):
        local = StateReader().read({"t": torch.full((size,), float(size), device=device)})
        buffer.fill(local.tensors, set(local.tensors))
        found = buffer.bytes_of(PieceKey("t", (0,)))
        assert found is not None
        assert torch.frombuffer(bytearray(found), dtype=torch.float32).tolist() == [size] * size


def test_memory_that_cannot_be_pinned_is_ordinary() -> None:
    memory = _new_memory(100, pinned=True)
    memory[99] = 7
    assert (len(memory) >= 100, memory[99]) == (True, 7)


@pytest.mark.parametrize(
    "state",
    [3, [torch.ones(2)], {1: torch.ones(2)}, {"s": torch.ones(2, 2).to_sparse()}],
)
def test_what_cannot_be_saved_is_said_at_once(state: object) -> None:
    with pytest.raises(ArgumentError):
        StateReader().read(state)  # type: ignore[arg-type]


def test_lengths_are_those_of_torch_zips() -> None:
    assert len_in_file((0,), torch.float32) < len_in_file((1000,), torch.float32)
