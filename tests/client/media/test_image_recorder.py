"""Images that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.image_recorder import ImgRecorder
from rla_client.media.video_recorder import VideoRecorder


def test_images_and_videos_over_the_limits_are_refused_at_the_call(run: Any) -> None:
    with pytest.raises(ArgumentError, match="16384"):
        ImgRecorder.save("wide", np.zeros((2, 20_000), np.uint8))
    many = np.broadcast_to(np.zeros((1, 4, 4, 3), np.uint8), (1_000_001, 4, 4, 3))
    with pytest.raises(ArgumentError, match="1000000 frames"):
        VideoRecorder.save("long", many)
    large = np.broadcast_to(np.zeros((1, 1000, 1000, 3), np.uint8), (2000, 1000, 1000, 3))
    with pytest.raises(ArgumentError, match="4 GiB"):
        VideoRecorder.save("large", large)
    assert run.jobs == []
