"""Values of wandb's names, and the files that they become."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("tensorboardX")

from rla_client.integrations.wandb.values import Object3D, Video, _one_film
from rla_client.media.row_media import media_file


def test_each_becomes_one_file() -> None:
    films = np.zeros((3, 2, 3, 4, 6), np.uint8)
    assert media_file(Video(films)) == ("video", ".mp4")
    assert media_file(Video(films[0], format="gif")) == ("video", ".gif")
    assert media_file(Video("film.webm")) == ("video", ".webm")
    assert media_file(Object3D(np.zeros((5, 3)))) == ("object3d", ".ply")
    assert media_file(Object3D({"type": "lidar/beta", "points": np.zeros((5, 3))})) == ("object3d", ".ply")
    assert media_file(Object3D("car.glb")) == ("object3d", ".glb")
    assert media_file(Object3D.from_file(io.StringIO("x"), "obj")) == ("object3d", ".obj")


def test_films_of_a_batch_are_beside_each_other() -> None:
    films = np.stack([np.full((2, 3, 4, 6), number, np.uint8) for number in (1, 2, 3)])
    film = _one_film(films)
    assert film.shape == (2, 3, 8, 12)
    corners = [film[1, 2, row, column] for row, column in ((0, 0), (3, 11), (7, 0), (7, 11))]
    assert corners == [1, 2, 3, 0]
