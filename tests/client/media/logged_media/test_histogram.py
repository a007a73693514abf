"""Histograms: of values, or of counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.histogram import Histogram


def test_a_file_has_edges_and_counts(tmp_path: Path) -> None:
    values = [1.0, 2.0, 2.0, float("nan"), float("inf")]
    Histogram(values, bins=2).save("h", {"cover": True, "add_timestamp": False, "results_dir": str(tmp_path)})
    found = json.loads((tmp_path / "h.histogram.json").read_text())
    assert found == {"edges": [1.0, 1.5, 2.0], "counts": [1, 2]}
    given = Histogram(counts=[1, 2], edges=np.array([0, 1, 2]))
    assert (given.counts.tolist(), given.edges.tolist()) == ([1.0, 2.0], [0.0, 1.0, 2.0])
    assert Histogram([]).counts.sum() == 0


def test_numbers_that_hardly_differ_and_what_holds_none(tmp_path: Path) -> None:
    """Neither ends training: what cannot be counted is told where the file would be made."""
    for values in ([1 / 7] * 6 + [1 - 6 / 7], [2.0**53, 2.0**53 + 2], [-1e308, 1e308], [3.0] * 5):
        found = Histogram(values)
        assert found.counts.sum() == len(values)
        assert len(found.edges) == len(found.counts) + 1
    with pytest.raises(ArgumentError, match="no numbers to count"):
        Histogram(["a", "b"]).save("h", {"cover": True, "add_timestamp": False, "results_dir": str(tmp_path)})


@pytest.mark.parametrize(
    "wrong",
    [{}, {"counts": [1]}, {"values": [1], "counts": [1], "edges": [0, 1]}, {"counts": [1], "edges": [0]},
     {"values": [1], "bins": 0}, {"values": [1], "bins": 10**6}],
)  # fmt: skip
def test_what_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Histogram(**wrong)
