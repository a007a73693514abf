"""Pictures among the values of a row: figures, images, arrays that can only be images, lists of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import rla_client
from rla_client import logger
from rla_client.media.row_media import is_media, media_file, safe_name
from rla_client.run.record.run_logger import Logger
from rla_client.stream.clock import time_step_holder


@pytest.fixture
def current(run: Any) -> Iterator[Logger]:
    """The logger of `run`, as the current one."""
    made = Logger(str(run.results.parent), ["csv"], run.outbox)
    logger.set_current(made)
    yield made
    logger.set_current(None)


def figure() -> Figure:
    made = Figure(figsize=(2, 1))
    made.subplots().plot([1, 2])
    return made


def test_pictures_of_a_row_are_files(run: Any, current: Logger) -> None:
    red = Image.new("RGB", (12, 10), "red")
    channels_first = np.zeros((3, 10, 12), np.uint8)
    row = rla_client.log(
        {
            "fig": figure(),
            "eval": {"img": red},
            "both": [red, channels_first],
            "loss": 0.5,
            "axes": figure().axes,
        },
        step=5,
    )
    assert row.keys() == {"loss", "time-step", "timestamp"}
    assert run.warnings == []
    run.work()
    assert run.files == ["5-axes-0.png", "5-both-0.png", "5-both-1.png", "5-fig.png", "eval/5-img.png"]
    for name in run.files:
        with Image.open(run.results / name) as picture:
            picture.load()
    with Image.open(run.results / "eval/5-img.png") as picture:
        assert picture.getpixel((3, 3)) == (255, 0, 0)


def test_pictures_alone_are_no_row_but_count_as_a_step(run: Any, current: Logger) -> None:
    time_step_holder.clear()
    for _ in range(2):
        assert rla_client.log({"img": Image.new("L", (4, 4))}) == {}
    run.work()
    assert run.files == ["0-img.png", "1-img.png"]


def test_what_another_library_logs_has_its_own_step(run: Any, current: Logger) -> None:
    from rla_client.adapter import write_row

    time_step_holder.set_time(50)
    write_row({"eval/img": Image.new("L", (4, 4)), "x": 1.0}, 20)
    run.work()
    assert run.files == ["eval/20-img.png"]


def test_a_page_of_plotly(run: Any, current: Logger) -> None:
    graph = pytest.importorskip("plotly.graph_objects")
    rla_client.log({"curve": graph.Figure(data=[graph.Scatter(y=[1, 2])])}, step=3)
    kind, path, content = next(file_frames(run))
    assert (kind, path) == ("results", "3-curve.html")
    script = rb'src="https://cdn\.plot\.ly/plotly-[\w.]+\.min\.js" integrity="sha256-[\w+/=]{44}"'
    assert re.search(script, content)
    assert content.index(b"plotly-") < content.index(b"Plotly.newPlot")


def file_frames(run: Any) -> Iterator[tuple[str, str, bytes]]:
    from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack

    for segment in run.outbox.stream_folder.glob("*.seg"):
        for frame in iter_frames(segment.read_bytes()):
            if frame.kind == FrameKind.FILE:
                yield tuple(unpack(frame.payload))


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((10, 12), np.uint8),
        np.zeros((10, 12, 3)),
        np.zeros((10, 12, 5), np.uint8),
        np.zeros((4, 10, 12, 3), np.uint8),
        np.zeros((1, 1, 3), np.uint8),
        np.float32(1.0),
        "text",
        b"bytes",
        None,
        [],
        [1, 2],
        {"a": 1},
        sys,
        object(),
    ],
)
def test_what_is_no_picture(value: object) -> None:
    assert not is_media(value)
    assert not is_media(value), "as it is remembered"


def test_what_becomes_one_file_has_a_kind_and_an_ending() -> None:
    pandas = pytest.importorskip("pandas")
    image = np.zeros((8, 8, 3), np.uint8)
    endings = [".png", ".png", ".png", ".JPG"]
    pictures = (image, figure(), rla_client.Image(image), rla_client.Image(Path("photo.JPG")))
    assert [media_file(value) for value in pictures] == [("image", ending) for ending in endings]
    others = {
        ("video", ".gif"): rla_client.Video(image, format="gif"),
        ("audio", ".wav"): rla_client.Audio([0.0]),
        ("audio", ".ogg"): rla_client.Audio("a.ogg"),
        ("histogram", ".histogram.json"): rla_client.Histogram([1.0]),
        ("table", ".csv"): pandas.DataFrame({"a": [1]}),
    }
    assert [media_file(value) for value in others.values()] == list(others)
    assert [media_file(value) for value in ([image], rla_client.Image("none"), 5)] == [None] * 3


def test_a_list_that_contains_itself_twice_ends() -> None:
    endless: list[object] = []
    endless += [endless, endless]
    assert not is_media(endless)


def test_a_list_that_contains_itself_ends(run: Any, current: Logger) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    endless: list[object] = [image]
    endless.append(endless)
    assert is_media([[image], image])
    assert rla_client.log({"all": endless}, step=1) == {}
    run.work()
    assert run.files == ["1-all-0.png"]
    assert "picture all-1 is lost" in run.warnings[0]


def test_of_a_list_with_pictures_what_is_none_is_lost_and_no_text_of_an_object_is_kept(
    run: Any, current: Logger
) -> None:
    assert rla_client.log({"all": [3, rla_client.Image(np.zeros((8, 8, 3), np.uint8))]}, step=1) == {}
    run.work()
    assert run.files == ["1-all-1.png"]
    assert "all-0 is lost" in run.warnings[0]


def test_a_property_that_raises_makes_no_picture() -> None:
    class Odd:
        @property
        def ndim(self) -> int:
            raise RuntimeError

    assert not is_media(Odd())


def test_a_picture_that_cannot_be_saved_costs_no_row_and_is_counted(run: Any, current: Logger) -> None:
    row = rla_client.log({"wide": Image.new("L", (20_000, 1)), "loss": 1.0}, step=1)
    assert row["loss"] == 1.0
    assert run.outbox.lost_others == 1
    (loss,) = run.outbox.losses
    assert (loss.kind, loss.name) == ("picture", "wide")
    assert "16384" in loss.reason
    assert "wide is lost" in run.warnings[0]


def test_of_an_object_the_text_is_kept_and_the_warning_says_so(run: Any, tmp_path: Path) -> None:
    made = Logger(str(tmp_path), ["csv", "tensorboard"], run.outbox)
    made.record("thing", Path("a/b"))
    made.record("words", "abc")
    from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack

    data = b"".join(segment.read_bytes() for segment in run.outbox.stream_folder.glob("*.seg"))
    said = [unpack(frame.payload)[1] for frame in iter_frames(data) if frame.kind == FrameKind.TEXT]
    assert "thing is of type PosixPath; its text is kept" in said[0]
    assert "words is not a number; it is kept" in said[1]


def test_names_that_can_be_no_files() -> None:
    assert safe_name("../a//b/./c") == "a/b/c"
    assert safe_name("a\0b") == "unnamed"
    assert len(safe_name("x" * 1000)) == 180
