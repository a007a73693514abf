"""A cloud of points in space."""

from __future__ import annotations

from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.logged_value import LoggedValue, Where, to_array
from rla_client.media.result_file import keep_bytes

MAX_POINTS = 2_000_000  # 30 MB
_PLACE, _COLOUR = 3, 6  # columns


class PointCloud(LoggedValue):
    """Points in space: `log({"lidar": PointCloud(points)})` makes `<time-step>-lidar.ply`.

    MeshLab, Blender, CloudCompare and Open3D open PLY.

    Args:
        points: array, tensor or list of shape (n, 3): x, y, z; or (n, 6): also red, green, blue from 0 to
            255.

    Raises:
        ArgumentError: the points have another shape, are not numbers, or are more than `MAX_POINTS`.
    """

    def __init__(self, points: Any) -> None:  # noqa: ANN401 - see above
        try:
            found = to_array(points).astype("float32")
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a point cloud takes numbers: {error}") from error
        if found.ndim != 2 or found.shape[1] not in {_PLACE, _COLOUR} or len(found) > MAX_POINTS:  # noqa: PLR2004
            raise ArgumentError(
                f"a point cloud is (n, 3) or (n, 6), {MAX_POINTS} points at most, got {found.shape}"
            )
        self.points = found

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ".ply"

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        import numpy as np  # noqa: PLC0415 - not at import of the package

        fields = [(axis, "<f4") for axis in "xyz"]
        lines = [f"property float {axis}" for axis in "xyz"]
        if self.points.shape[1] == _COLOUR:
            fields += [(colour, "u1") for colour in ("red", "green", "blue")]
            lines += [f"property uchar {colour}" for colour in ("red", "green", "blue")]
        records = np.zeros(len(self.points), dtype=fields)
        for place, (field, kind) in enumerate(fields):
            column = self.points[:, place]
            records[field] = np.clip(np.nan_to_num(column), 0, 255) if kind == "u1" else column
        head = [
            "ply",
            "format binary_little_endian 1.0",
            f"element vertex {len(records)}",
            *lines,
            "end_header",
            "",
        ]
        keep_bytes(f"{name}.ply", "\n".join(head).encode() + records.tobytes(), where)
