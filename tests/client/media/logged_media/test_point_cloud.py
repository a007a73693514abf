"""Clouds of points, read back as other programs read PLY."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.point_cloud import MAX_POINTS, PointCloud


def saved(points: Any, folder: Path) -> tuple[list[str], bytes]:
    """The lines of the header, and what follows it."""
    where = {"cover": True, "add_timestamp": False, "results_dir": str(folder)}
    PointCloud(points).save("cloud", where)
    head, _, data = (folder / "cloud.ply").read_bytes().partition(b"end_header\n")
    return head.decode().splitlines(), data


def test_places(tmp_path: Path) -> None:
    points = np.arange(12.0).reshape(4, 3)
    head, data = saved(points, tmp_path)
    assert head[:3] == ["ply", "format binary_little_endian 1.0", "element vertex 4"]
    assert head[3:] == ["property float x", "property float y", "property float z"]
    assert (np.frombuffer(data, "<f4").reshape(4, 3) == points).all()


def test_colours_are_cut_to_a_byte(tmp_path: Path) -> None:
    head, data = saved([[1, 2, 3, -5, 128.7, 999], [1, 2, 3, float("nan"), 0, 255]], tmp_path)
    assert head[-3:] == ["property uchar red", "property uchar green", "property uchar blue"]
    record = np.dtype([("place", "<f4", 3), ("colour", "u1", 3)])
    assert np.frombuffer(data, record)["colour"].tolist() == [[0, 128, 255], [0, 0, 255]]


def test_no_points(tmp_path: Path) -> None:
    assert saved(np.zeros((0, 3)), tmp_path)[1] == b""


@pytest.mark.parametrize(
    "points", [[1, 2, 3], np.zeros((3, 4)), [["a", "b", "c"]], np.zeros((MAX_POINTS + 1, 3), "u1"), object()]
)
def test_what_is_none_is_said(points: Any) -> None:
    with pytest.raises(ArgumentError, match="point cloud"):
        PointCloud(points)
