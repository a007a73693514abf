"""`.metadata` is read without running what it names."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint import FileSystemReader, save  # noqa: E402 - after the check that it is there
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex  # noqa: E402

from rla_client.checkpoint.dcp_metadata import make_metadata, read_metadata  # noqa: E402
from rla_client.checkpoint.shard_plan import LocalPlan, ShardPiece, SharedPlan, placed  # noqa: E402
from rla_client.contract.errors import UntrustedCheckpointError  # noqa: E402

PIECES = (
    ShardPiece("w", "tensor", (0, 0), (2, 3), (2, 3), "bfloat16", 100),
    ShardPiece("n", "bytes"),
)


def own() -> bytes:
    plan = SharedPlan([LocalPlan(PIECES, {"w": ("model", "w"), "n": ("n",)})])
    return make_metadata(plan, placed(plan.pieces[0], 0, {"n": 40}))


def test_what_we_make_is_read_by_torch_and_by_us(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(own())
    found = FileSystemReader(tmp_path).read_metadata()
    assert found.state_dict_metadata == read_metadata(own(), {"__0_0.distcp": 168}).state_dict_metadata
    assert found.state_dict_metadata["w"].properties.dtype is torch.bfloat16
    assert found.storage_data[MetadataIndex("n")].offset == 128
    assert found.planner_data == {"w": ("model", "w"), "n": ("n",)}


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_what_torch_makes_is_read(tmp_path: Path) -> None:
    state = {"a": torch.ones(3), "b": {"c": 3, "d": torch.zeros(2, dtype=torch.complex64)}}
    save(state, checkpoint_id=tmp_path, no_dist=True)
    data = (tmp_path / ".metadata").read_bytes()
    found = read_metadata(data, {"__0_0.distcp": (tmp_path / "__0_0.distcp").stat().st_size})
    assert set(found.state_dict_metadata) == {"a", "b.c", "b.d"}


class Evil:
    def __init__(self, call: object, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize(
    "evil",
    [
        Evil(os.system, "touch ran"),
        Evil(eval, "open('ran','w')"),
        Evil(torch.load, "x"),
        Evil(getattr, "", "join"),
        Evil(pickle.loads, b""),
        Metadata({}, Evil(os.mkdir, "ran"), {}),
        Metadata({}, {}, {MetadataIndex("a"): Evil(os.mkdir, "ran")}),
        {"no": "metadata"},
        Metadata({}, {}, None),
    ],
)
def test_evil_ones_are_refused(evil: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedCheckpointError):
        read_metadata(pickle.dumps(evil), {})
    assert os.listdir(tmp_path) == []


def test_a_name_in_a_pickle_is_no_way_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (b"cos\nsystem\n", b"ctorch\nhub.load\n", b"ctorch\nload\n", b"cbuiltins\ngetattr\n"):
        with pytest.raises(UntrustedCheckpointError):
            read_metadata(line + b"(S'touch ran'\ntR.", {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("files", [{}, {"__0_0.distcp": 167}, {"../x": 1000}])
def test_places_outside_the_checkpoint_are_refused(files: dict[str, int]) -> None:
    with pytest.raises(UntrustedCheckpointError, match="no part of it"):
        read_metadata(own(), files)


def test_damage_is_refused() -> None:
    data = own()
    for cut in range(0, len(data), 7):
        with pytest.raises(UntrustedCheckpointError):
            read_metadata(data[:cut], {"__0_0.distcp": 168})
    with io.BytesIO(data) as whole:
        assert read_metadata(whole.read(), {"__0_0.distcp": 168})
