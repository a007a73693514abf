from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.options import Options
from rla_client.launcher.snapshot.snapshot_modes import check_mode, snapshot_names


@pytest.mark.parametrize(
    ("mode", "gap", "written"),
    [
        ("all", 1, {0: ("itr_0.pkl",), 1: ("itr_1.pkl",)}),
        ("last", 1, {0: ("params.pkl",), 7: ("params.pkl",)}),
        ("gap", 5, {0: ("itr_0.pkl",), 4: (), 5: ("itr_5.pkl",)}),
        ("gap_and_last", 5, {4: ("params.pkl",), 5: ("itr_5.pkl", "params.pkl")}),
        ("gap_overwrite", 5, {4: (), 5: ("params.pkl",)}),
        ("none", 1, {0: ()}),
    ],
)
def test_what_each_mode_writes(mode: str, gap: Any, written: Any) -> None:
    check_mode(mode, gap)
    assert {itr: snapshot_names(mode, gap, itr) for itr in written} == written


@pytest.mark.parametrize(
    ("mode", "gap"), [("last", 2), ("gap_overwrite", 1), ("some", 1), ("gap", 0), ("gap", 1.5), ("gap", True)]
)
def test_what_cannot_be_meant(mode: str, gap: Any) -> None:
    with pytest.raises(ArgumentError):
        check_mode(mode, gap)


def test_a_gap_of_numpys_is_an_int() -> None:
    assert type(Options(snapshot_mode="gap", snapshot_gap=np.int64(2)).snapshot_gap) is int
