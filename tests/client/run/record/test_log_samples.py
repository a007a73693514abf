"""Samples into a stream: their pictures, and what is told."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rla_client
from rla_client import logger
from rla_client.config.schema import SamplesConfig
from rla_client.contract.spool.protocol import Frame, FrameKind, iter_frames, unpack
from rla_client.media.recording_target import RecordingTarget, bind
from rla_client.run.record import log_samples
from rla_client.run.record.run_logger import Logger
from rla_client.samples.sample_chunks import MAX_TOLD


@pytest.fixture(name="current", autouse=True)
def current_fixture(run: Any) -> Iterator[Logger]:
    made = Logger(str(run.results.parent), (), run.outbox)
    logger.set_current(made)
    yield made
    logger.set_current(None)


def _frames(run: Any, kind: FrameKind) -> list[Frame]:
    (segment,) = run.outbox.stream_folder.glob("*.seg")
    return [frame for frame in iter_frames(segment.read_bytes()) if frame.kind == kind]


def _samples(run: Any) -> list[dict[str, Any]]:
    return [unpack(row) for frame in _frames(run, FrameKind.SAMPLES) for row in unpack(frame.payload)[4]]


def _images(found: Any) -> list[Any]:
    if isinstance(found, dict) and "image" in found:
        return [found["image"]]
    if isinstance(found, dict | list):
        return [
            name for one in (found.values() if isinstance(found, dict) else found) for name in _images(one)
        ]
    return []


def _frame(shade: int = 0) -> Image.Image:
    return Image.new("RGB", (2, 2), (shade, 0, 0))


def test_pictures_beyond_the_most_of_a_call_are_left_out_and_counted(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_samples, "MAX_PICTURES", 3)
    for step in range(2):
        rla_client.log_samples([{"frames": [_frame()] * 2, "n": n} for n in range(3)], step=step)
    run.work()
    names = [_images(row) for row in _samples(run)]
    assert [[bool(name) for name in row] for row in names] == [[True, True], [True, False], [False] * 2] * 2
    assert sorted(name for row in names for name in row if name) == run.files
    assert run.outbox.lost_others == 2
    assert run.outbox.losses[-1][1:] == ("train", "3 pictures of a call are left out, which keeps 3")
    assert len(run.warnings) == 1


def test_only_samples_that_stay_have_their_pictures_saved(run: Any, current: Logger) -> None:
    current.sample_limits = SamplesConfig(step_max_rows=2)
    rla_client.log_samples(
        [{"prompt": "p", "completion": str(n), "seen": {"a": _frame(n)}, "reward": n} for n in range(9)],
        step=1,
    )
    run.work()
    rows = _samples(run)
    assert len(rows) == len(run.files) == 2
    for row in rows:
        with Image.open(run.results / row["seen"]["a"]["image"]) as picture:
            assert picture.getpixel((0, 0)) == (row["reward"], 0, 0)


def test_each_name_is_that_of_a_file(run: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    _frame().save(tmp_path / "photo.jpg")
    cells = [
        np.zeros((4, 4, 3), np.uint8),
        rla_client.Image(tmp_path / "photo.jpg"),
        rla_client.Video(np.zeros((2, 16, 16, 3), np.uint8), format="gif"),
        rla_client.Audio(np.zeros(9)),
        rla_client.Histogram([1.0]),
        rla_client.Html("<b>"),
        rla_client.PointCloud([[0, 0, 0]]),
        pandas.DataFrame({"a": [1]}),
    ]
    rla_client.log_samples([{"cells": cells}], step=1)
    run.work()
    (row,) = _samples(run)
    kinds, names = zip(*(reference for cell in row["cells"] for reference in cell.items()), strict=True)
    assert kinds == ("image", "image", "video", "audio", "histogram", "html", "pointcloud", "table")
    sent = [path for frame in _frames(run, FrameKind.FILE) for path in unpack(frame.payload)[1:2]]
    assert sorted(names) == sorted([*run.files, *sent])


def test_columns_of_tokens_are_told_with_the_call_that_has_them(run: Any) -> None:
    for step in range(1000):
        rla_client.log_samples([{"completion": "c", f"{step}_ids": [1], "mask": [1]}], step=step)
    assert len(run.warnings) == MAX_TOLD
    assert sum("'mask'" in text for text in run.warnings) == 1


def test_a_warning_that_is_an_error_makes_no_samples_lost(run: Any) -> None:
    bind(RecordingTarget(run.results, run.outbox, warnings.warn))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="'mask' is taken for token ids"):
            rla_client.log_samples([{"completion": "c", "mask": [1]}], step=1)
    assert (_samples(run)[0]["completion"], run.outbox.lost_others) == ("c", 0)
