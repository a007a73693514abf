"""Images of any kind, from the user's array to the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.errors import ArgumentError
from rla_client.media.image_recorder import ImgRecorder

torch = pytest.importorskip("torch", reason="needs PyTorch")

RGB = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
IMAGES: list[tuple[Any, Any]] = [
    (RGB, RGB),
    (RGB.transpose(2, 0, 1), RGB),
    (RGB[::-1, ::2], RGB[::-1, ::2]),
    (RGB[:, :, 0], RGB[:, :, 0]),
    (RGB[:, :, :1], RGB[:, :, 0]),
    (np.dstack([RGB, RGB[:, :, :1]]), np.dstack([RGB, RGB[:, :, :1]])),
    (torch.from_numpy(RGB.copy()).permute(2, 0, 1), RGB),
    (torch.from_numpy(RGB / 255.0).to(torch.float32).requires_grad_(), RGB),
    (RGB / 255.0, RGB),
    (RGB.astype(np.float32), RGB),
    (RGB.astype(np.int64) * 10 - 30, np.clip(RGB.astype(int) * 10 - 30, 0, 255)),
    (RGB.astype(">i4"), RGB),
    (np.array([[True, False]]), np.array([[255, 0]])),
    (np.array([[np.nan, 0.5, np.inf]]), np.array([[0, 128, 255]])),
    (Image.fromarray(RGB), RGB),
    (Image.fromarray(RGB[:, :, 0] / np.float32(255)), RGB[:, :, 0]),
    (Image.fromarray(RGB[:, :, 0].astype(np.int32) * 10), np.clip(RGB[:, :, 0].astype(int) * 10, 0, 255)),
    (Image.fromarray(RGB).convert("P", palette=Image.Palette.ADAPTIVE), None),
    ([[0, 100], [200, 50]], np.array([[0, 100], [200, 50]])),
]


@pytest.mark.parametrize("number", range(len(IMAGES)))
def test_images_of_any_kind(run: Any, number: int) -> None:
    image, expected = IMAGES[number]

    ImgRecorder.save("i", image)

    (result,) = run.work()
    assert result.outcome is JobOutcome.WRITTEN, result
    found = np.asarray(Image.open(run.results / "7-i.png"))
    if expected is not None:
        assert found.tolist() == expected.tolist()


def test_what_is_drawn_into_an_array_later_does_not_matter(run: Any) -> None:
    image = RGB.copy()
    ImgRecorder.save("i", image)
    image[:] = 0
    run.work()

    assert np.asarray(Image.open(run.results / "7-i.png")).tolist() == RGB.tolist()


@pytest.mark.slow
def test_image_formats(run: Any) -> None:
    rgba = np.full((8, 8, 4), 200, np.uint8)
    for extension in ("png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"):
        ImgRecorder.save(f"i.{extension}", rgba)

    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN] * 8
    for path in run.results.iterdir():
        assert abs(int(np.asarray(Image.open(path).convert("RGB"))[4, 4, 0]) - 200) < 4


NO_IMAGES = [np.zeros((2, 2, 2)), np.zeros(3), np.zeros((0, 2, 3)), np.array([["a"]]), "text"]


@pytest.mark.parametrize("image", [*NO_IMAGES, torch.eye(3).to_sparse(), torch.empty(3, 3, device="meta")])
def test_what_is_no_image_raises_at_the_call(run: Any, image: Any) -> None:
    with pytest.raises(ArgumentError):
        ImgRecorder.save("i", image)
    assert run.jobs == []
