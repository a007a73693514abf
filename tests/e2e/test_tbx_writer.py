"""Every add_* of tensorboardX, through a live agent, beside what tensorboardX writes itself."""

from __future__ import annotations

import csv
import os
import struct
import wave
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import tensorboardX
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from rla_client.run.plain_run import open_plain_run
from rla_client.stream.clock import time_step_holder

torch = pytest.importorskip("torch", reason="needs PyTorch")

mpl.use("Agg")
WALL = 1_700_000_000.25
RANDOM = np.random.default_rng(3)
GREY = RANDOM.integers(0, 255, (8, 9, 1), dtype=np.uint8)
COLOURS = RANDOM.integers(0, 255, (3, 8, 9, 3), dtype=np.uint8)
LABELS, SCORES = np.array([0, 1, 1, 0]), np.array([0.1, 0.8, 0.6, 0.4])


def figure() -> Any:
    from matplotlib import pyplot as plt

    made, axes = plt.subplots(figsize=(1, 1))
    axes.plot([1, 3, 2])
    return made


def add_everything(writer: Any) -> None:
    """What both writers can do here, each once, with a step and a wall time where it takes one.

    Missing: add_onnx_graph, which needs the onnx package; add_video and add_audio, for which
    tensorboardX needs packages that we do not.
    """
    writer.add_scalar("scalar", 0.25, 1, WALL)
    writer.add_scalars("scalars", {"train": 1.0, "eval": 2.0}, 2, WALL)
    writer.add_histogram("histogram", np.linspace(0, 1, 50), 3, walltime=WALL)
    writer.add_histogram("histogram/torch", torch.linspace(0, 1, 50), 3, bins=7, walltime=WALL)
    writer.add_histogram_raw("raw", 0.0, 3.0, 3, 6.0, 14.0, [1.0, 2.0, 3.0], [1, 1, 1], 4, WALL)
    writer.add_image("image", GREY, 5, WALL, dataformats="HWC")
    writer.add_images("images", COLOURS, 6, WALL, dataformats="NHWC")
    writer.add_image_with_boxes("boxes", torch.zeros(3, 16, 16), np.array([[1, 1, 5, 5]]), 7, WALL)
    writer.add_figure("figure", figure(), 8, walltime=WALL)
    writer.add_text("text", "**bold** é", 9, WALL)
    writer.add_pr_curve("pr", LABELS, SCORES, 10, num_thresholds=11, walltime=WALL)
    writer.add_pr_curve_raw("pr/raw", *np.arange(24.0).reshape(6, 4), 11, num_thresholds=4, walltime=WALL)
    writer.add_mesh("mesh", torch.arange(12.0).reshape(1, 4, 3), global_step=12, walltime=WALL)
    writer.add_custom_scalars({"group": {"chart": ["Multiline", ["loss/.*"]]}})
    writer.add_custom_scalars_multilinechart(["a", "b"], "one", "two")
    writer.add_custom_scalars_marginchart(["a", "b", "c"], "one", "three")
    writer.add_graph(torch.nn.Linear(2, 1), torch.zeros(1, 2))
    writer.add_hparams({"lr": 0.1, "name": "ppo", "flag": True}, {"hparam/return": 3.0}, "session", 13)
    writer.add_embedding(np.eye(3), ["a", "b", "c"], torch.ones(3, 3, 4, 4), 14, "points")


def records(file: Path) -> Iterator[Event]:
    data = file.read_bytes()
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12 : at + 12 + size])
        at += 12 + size + 4


def events(folder: Path) -> list[Event]:
    return [event for file in sorted(folder.rglob("events.out.*")) for event in records(file)]


def summaries(found: list[Event]) -> dict[str, list[tuple[float, int, bytes]]]:
    """Per tag: wall time, step and bytes of the value."""
    by_tag: dict[str, list[tuple[float, int, bytes]]] = {}
    for event in found:
        for value in event.summary.value:
            by_tag.setdefault(value.tag, []).append(
                (event.wall_time, event.step, value.SerializeToString(deterministic=True))
            )
    return by_tag


@pytest.fixture
def written(agent: Any, tmp_path: Path) -> Callable[[Callable[[Any], None]], Path]:
    """Folder of the event files after a function has used the writer."""

    def write(use: Callable[[Any], None]) -> Path:
        run = open_plain_run(str(tmp_path / "run"), ("tensorboard",), None, None, "", {})
        from rla_client.run.record.summary_writer import tbx_writer

        try:
            use(tbx_writer(run.logger))
            assert run.outbox is not None
            assert run.outbox.flush(60)
        finally:
            run.close("finished", "")
        return tmp_path / "run" / "tb" / "events"

    return write


@pytest.mark.slow
def test_every_kind_of_summary_is_as_tensorboardx_writes_it(
    written: Callable[[Callable[[Any], None]], Path], tmp_path: Path
) -> None:
    folder = written(add_everything)
    with tensorboardX.SummaryWriter(str(tmp_path / "plain")) as plain:
        add_everything(plain)
    ours, theirs = summaries(events(folder)), summaries(events(tmp_path / "plain"))
    undated = {tag for tag in theirs if tag.startswith(("custom_scalars", "hparam/"))}
    dated = {tag for tag in theirs if not tag.startswith("_hparams_")} - undated - {"scalars"}
    assert len(undated) == 2
    assert len(dated) == 12, sorted(theirs)
    for tag in dated:
        assert ours[tag] == theirs[tag], tag
    for tag in undated:
        assert [value for *_, value in ours[tag]] == [value for *_, value in theirs[tag]], tag
    for name, value in (("train", 1.0), ("eval", 2.0)):  # theirs are runs of their own
        assert EventAccumulator(str(folder)).Reload().Scalars(f"scalars/{name}")[0].value == value


@pytest.mark.slow
def test_graph_and_hyper_parameters_are_as_tensorboardx_writes_them(
    written: Callable[[Callable[[Any], None]], Path], tmp_path: Path
) -> None:
    folder = written(add_everything)
    with tensorboardX.SummaryWriter(str(tmp_path / "plain")) as plain:
        add_everything(plain)
    graphs = [[e.graph_def for e in events(place) if e.graph_def] for place in (folder, tmp_path / "plain")]
    assert graphs[0] == graphs[1] != []
    assert EventAccumulator(str(folder)).Reload().Graph().node
    for tag in ("_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"):
        ours, theirs = (hyper_params(events(place), tag) for place in (folder, tmp_path / "plain"))
        assert ours == theirs, tag


def hyper_params(found: list[Event], tag: str) -> list[str]:
    contents = [
        HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in found
        for value in event.summary.value
        if value.tag == tag
    ]
    assert contents, tag
    for content in contents:
        content.session_start_info.start_time_secs = content.session_end_info.end_time_secs = 0.0
    return [str(content) for content in contents]


@pytest.mark.slow
def test_embeddings_are_the_same_files(
    written: Callable[[Callable[[Any], None]], Path], tmp_path: Path
) -> None:
    folder = written(add_everything)
    with tensorboardX.SummaryWriter(str(tmp_path / "plain")) as plain:
        add_everything(plain)
    ours, theirs = (
        {file.relative_to(place).as_posix(): file.read_bytes() for file in place.rglob("*.[tps][sbn][vtg]*")}
        for place in (folder, tmp_path / "plain")
    )
    assert len(theirs) >= 4
    assert ours == theirs


@pytest.mark.slow
def test_video_and_sound_need_no_further_packages(written: Callable[[Callable[[Any], None]], Path]) -> None:
    film = RANDOM.integers(0, 255, (1, 5, 3, 8, 8), dtype=np.uint8)
    sound = np.sin(np.linspace(0, 20, 800))

    def use(writer: Any) -> None:
        writer.add_video("video", film, 1, fps=10, walltime=WALL)
        writer.add_audio("sound", sound, 2, sample_rate=8000, walltime=WALL)

    found = EventAccumulator(str(written(use))).Reload()
    picture = found.Images("video")[0]
    assert (picture.step, picture.wall_time) == (1, WALL)
    assert Image.open(BytesIO(picture.encoded_image_string)).n_frames == 5  # type: ignore[attr-defined]
    audio = found.Audio("sound")[0]
    with wave.open(BytesIO(audio.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 800)
        samples = np.frombuffer(file.readframes(800), "<i2") / 32767
    assert np.allclose(samples, sound, atol=1e-4)


@pytest.mark.slow
def test_openvino_graph(written: Callable[[Callable[[Any], None]], Path], tmp_path: Path) -> None:
    model = tmp_path / "model.xml"
    model.write_text(
        '<net><layers><layer id="0" name="in"/><layer id="1" name="out"/></layers>'
        '<edges><edge from-layer="0" to-layer="1"/></edges></net>'
    )
    graph = (
        EventAccumulator(str(written(lambda writer: writer.add_openvino_graph(str(model))))).Reload().Graph()
    )
    assert [(node.name, list(node.input)) for node in graph.node] == [("out", ["in"])]


def cells(folder: Path) -> list[dict[str, str]]:
    """Rows of progress.csv without blank cells and timestamps."""
    with (folder / "progress.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if v and k != "timestamp"} for row in csv.DictReader(file)]


@pytest.fixture(name="run")
def run_fixture(agent: Any, tmp_path: Path) -> Iterator[Any]:
    run = open_plain_run(str(tmp_path / "run"), ("tensorboard", "csv", "log"), None, None, "", {})
    yield run
    run.close("finished", "")


def writer_of(run: Any) -> Any:
    from rla_client.run.record.summary_writer import tbx_writer

    return tbx_writer(run.logger)


def test_the_scalars_of_a_step_are_a_row(run: Any, tmp_path: Path) -> None:
    writer = writer_of(run)
    for step in (10, 20):
        writer.add_scalar("losses/value", step / 8, step)
        writer.add_scalar("charts/return", np.float32(step), torch.tensor(step))
    writer.add_scalar("charts/return", 1.5, 20)  # a second episode in the same step
    writer.add_scalar("late", 7, 10)
    writer.add_scalars("eval", {"a": 1, "b": float("nan")}, 30)
    writer.flush()
    run.logger.record("own", 1)
    run.logger.dump()
    assert run.outbox.flush(60)
    assert cells(tmp_path / "run") == [
        {"time-step": "10", "losses/value": "1.25", "charts/return": "10.0"},
        {"time-step": "20", "losses/value": "2.5", "charts/return": "20.0"},
        {"time-step": "20", "charts/return": "1.5"},
        {"time-step": "10", "late": "7"},
        {"time-step": "30", "eval/a": "1", "eval/b": "nan"},
        {"time-step": str(time_step_holder.get_time()), "own": "1"},
    ]
    found = EventAccumulator(str(tmp_path / "run" / "tb" / "events")).Reload()
    assert [(one.step, one.value) for one in found.Scalars("charts/return")] == [
        (10, 10),
        (20, 20),
        (20, 1.5),
    ]
    assert len(found.Scalars("time-step")) == 1, "an event of its own for each scalar, none for their rows"
    assert "losses" not in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.slow
def test_the_last_row_is_written_when_the_run_ends_and_before_a_flush_of_the_logger(
    run: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    from rla_client import logger

    former = logger.set_current(run.logger)
    try:
        writer_of(run).add_scalar("a", 1, 1)
        assert logger.flush(60)
        assert cells(tmp_path / "run") == [{"time-step": "1", "a": "1"}]
        writer_of(run).add_scalar("a", 2, 2)
        run.close("finished", "")
        wait_until(lambda: len(cells(tmp_path / "run")) == 2, what="the last row")
    finally:
        logger.set_current(former)


@pytest.mark.slow
def test_a_row_waits_for_a_second_at_most(run: Any, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    writer_of(run).add_scalar("a", 1, 1)
    path = tmp_path / "run" / "progress.csv"
    wait_until(lambda: path.exists() and len(cells(path.parent)) == 1, what="a row that nothing followed")


def test_what_waits_at_a_fork_is_the_parents(run: Any, tmp_path: Path) -> None:
    writer = writer_of(run)
    writer.add_scalar("a", 1, 1)
    child = os.fork()
    if not child:
        try:
            writer.flush()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.add_scalar("a", 2, 2)
    writer.flush()
    assert run.outbox.flush(60)
    assert [row["a"] for row in cells(tmp_path / "run")] == ["1", "2"]
    assert not list((tmp_path / "run").glob("progress.p*.csv"))
