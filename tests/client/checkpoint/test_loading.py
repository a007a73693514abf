"""What a checkpoint file holds, loaded without running anything of it."""

from __future__ import annotations

import argparse
import datetime as dt
import random
from collections import OrderedDict
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from rla_client.checkpoint.loading import load_file
from rla_client.contract.errors import BrokenFileError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_no_whole_checkpoint_is_named(tmp_path: Path, trust: bool) -> None:
    path = tmp_path / "checkpoint_1.pt"
    torch.save({"w": torch.ones(1000)}, path)
    whole = path.read_bytes()
    cuts = [whole[:end] for end in (0, 1, 300, len(whole) - 30, len(whole) - 10)]
    others = [
        b"version https://git-lfs.github.com/spec/v1\n",
        b"<html>",
        b"hello",
        bytes(5000),
        b"PK\5\6" + bytes(18),
    ]
    for damaged in cuts + others:
        path.write_bytes(damaged)
        with pytest.raises(BrokenFileError, match=r"checkpoint_1\.pt cannot be read: it is no checkpoint"):
            load_file(path, trust=trust)
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    assert load_file(path)["w"].sum() == 3


def test_plain_data_of_any_kind_needs_no_trust(tmp_path: Path) -> None:
    content = {
        "random": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - as users have it
        "generator": np.random.default_rng(1).bit_generator.state,
        "torch": torch.get_rng_state(),
        "scalars": [np.float64(1.5), np.int32(3), np.bool_(1), 1 + 2j, Decimal("1.5")],
        "arrays": [np.ones(3, ">f4"), np.array(["a"]), np.zeros(2, "M8[ns]")],
        "sets": [{1, 2}, frozenset([3]), range(3), slice(1, 2), b"bytes", bytearray(b"x")],
        "ordered": OrderedDict(a=1),
        "kinds": [torch.float16, torch.device("cpu"), torch.Size([2, 3])],
        "arguments": argparse.Namespace(lr=0.1, path=Path("x"), layers=(1, 2)),
        "when": [dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc), dt.timedelta(1)],
    }
    torch.save(content, tmp_path / "x_1.pt")
    loaded = load_file(tmp_path / "x_1.pt")
    assert loaded["arguments"] == content["arguments"]
    assert loaded["scalars"] == content["scalars"]
    assert loaded["when"] == content["when"]
    random.setstate(loaded["random"])
