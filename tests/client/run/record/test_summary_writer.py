from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
from tensorboardX.record_writer import RecordWriter

from rla_client.contract.errors import ArgumentError
from rla_client.manager import ExpManager
from rla_client.run.record.summary_writer import AgentSummaryWriter
from rla_client.run.record.tf_summary import parse_summary
from rla_client.stream.summary_scalars import summary_scalars

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Spread:
    """Collects events as the agent would, and lets TensorBoard's own reader judge the file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step: float = 7
        self.events: list[tuple[bytes, float, int]] = []
        self.writer = AgentSummaryWriter(lambda *event: self.events.append(event), folder, lambda: self.step)

    def read(self) -> EventAccumulator:
        record = RecordWriter(str(self.folder / "events.out.tfevents.1.host"))
        for data, _, _ in self.events:
            record.write(data)
        record.close()
        return EventAccumulator(str(self.folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


@pytest.fixture
def spread(tmp_path: Path) -> Spread:
    (tmp_path / "run").mkdir()
    return Spread(tmp_path / "run")


def plugin_of(found: EventAccumulator, tag: str) -> str:
    return str(found.SummaryMetadata(tag).plugin_data.plugin_name)


def test_it_is_a_real_summary_writer_without_thread_or_file(spread: Spread) -> None:
    import tensorboardX

    threads = threading.active_count()
    assert isinstance(spread.writer, tensorboardX.SummaryWriter)
    spread.writer.add_scalar("loss", 0.5, 3)
    assert len(spread.events) == 1
    assert threading.active_count() == threads
    assert list(spread.folder.iterdir()) == []


def test_scalars_of_every_kind_arrive_with_step_and_wall_time(spread: Spread) -> None:
    from decimal import Decimal

    values = [1, 2.5, True, np.float32(0.5), np.int64(3), torch.tensor(1.5, requires_grad=True)]
    values += [torch.tensor(2.0, dtype=torch.bfloat16), Decimal("0.25"), np.array([4.0])]
    for step, value in enumerate(values):
        spread.writer.add_scalar("x", value, torch.tensor(step), walltime=100.0 + step)
    found = spread.read().Scalars("x")
    assert [event.value for event in found] == [1, 2.5, 1, 0.5, 3, 1.5, 2.0, 0.25, 4.0]
    assert [event.step for event in found] == list(range(9))
    assert [event.wall_time for event in found] == [100.0 + step for step in range(9)]


def test_without_a_step_the_time_step_counts(spread: Spread) -> None:
    spread.writer.add_scalar("a", 1.0)
    spread.step = 8.0
    spread.writer.add_scalar("a", 2.0)
    with spread.writer.use_metadata(global_step=20, walltime=5.0):
        spread.writer.add_scalar("a", 3.0)
    found = spread.read().Scalars("a")
    assert [(event.step, event.value) for event in found] == [(7, 1.0), (8, 2.0), (20, 3.0)]
    assert found[2].wall_time == 5.0
    assert [step for _, _, step in spread.events] == [7, 8, 20]


def test_a_step_beyond_64_bits_is_the_furthest_that_an_event_holds(spread: Spread) -> None:
    spread.writer.add_scalar("a", 1.0, 10**30)
    spread.step = -(10.0**30)
    spread.writer.add_histogram("h", np.arange(3))
    assert [step for _, _, step in spread.events] == [(1 << 63) - 1, -(1 << 63)]
    assert [event.step for event in spread.read().Scalars("a")] == [(1 << 63) - 1]


def test_add_scalars_lands_in_this_run(spread: Spread, tmp_path: Path) -> None:
    spread.writer.add_scalars("return", {"train": 1.0, "eval": torch.tensor(2.0)}, 4)
    found = spread.read()
    assert [event.value for event in found.Scalars("return/train")] == [1.0]
    assert [event.value for event in found.Scalars("return/eval")] == [2.0]
    spread.writer.export_scalars_to_json(tmp_path / "out.json")
    assert "return" in (tmp_path / "out.json").read_text()


def test_hparams_are_readable_by_the_hparams_plugin(spread: Spread) -> None:
    from tensorboard.plugins.hparams import metadata

    spread.writer.add_hparams(
        {"lr": np.float32(0.5), "net": "mlp", "deep": True, "odd": [1, 2]},
        {"final/return": 3.0},
        name="trial",
    )
    found = spread.read()
    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["lr"].number_value == 0.5
    assert start.hparams["net"].string_value == "mlp"
    assert start.hparams["deep"].bool_value is True
    assert start.hparams["odd"].string_value == "[1, 2]"
    assert [event.value for event in found.Scalars("final/return")] == [3.0]
    assert {path.name for path in spread.folder.iterdir()} == {"events.out.tfevents.1.host"}


def test_histograms_text_curves_meshes_and_layouts(spread: Spread) -> None:
    writer = spread.writer
    writer.add_histogram("h", torch.randn(50, dtype=torch.bfloat16, requires_grad=True), 1)
    writer.add_histogram_raw("raw", 0.0, 3.0, 3, 6.0, 14.0, [1.0, 2.0, 3.0], [1, 1, 1], 1)
    writer.add_text("note", "**bold**", 1)
    writer.add_pr_curve("pr", np.array([0, 1, 1]), np.array([0.1, 0.8, 0.6]), 1)
    writer.add_mesh("mesh", torch.rand(1, 4, 3), global_step=1)
    writer.add_custom_scalars({"group": {"chart": ["Multiline", ["loss/.*"]]}})
    writer.add_custom_scalars_multilinechart(["a", "b"])
    found = spread.read()
    assert found.Histograms("h")[0].histogram_value.num == 50
    assert found.Histograms("raw")[0].histogram_value.num == 3
    tags = found.Tags()["tensors"]
    plugins = {plugin_of(found, tag) for tag in tags}
    assert {"text", "pr_curves", "mesh", "custom_scalars"} <= plugins
    text = next(tag for tag in tags if plugin_of(found, tag) == "text")
    assert found.Tensors(text)[0].tensor_proto.string_val[0] == b"**bold**"


def picture(data: bytes) -> Any:
    import io

    from PIL import Image

    return Image.open(io.BytesIO(data))


def test_images_and_figures(spread: Spread) -> None:
    from matplotlib.figure import Figure

    grey = np.zeros((8, 8, 3), np.uint8)
    grey[0, 0] = 200
    spread.writer.add_image("image", grey, 1, dataformats="HWC")
    spread.writer.add_images("images", np.zeros((3, 8, 8, 3), np.uint8), 1, dataformats="NHWC")
    spread.writer.add_image_with_boxes("boxes", torch.zeros(3, 16, 16), np.array([[1, 1, 5, 5]]), 1)
    spread.writer.add_image("beyond", np.array([[-0.5, 0.5, 1.5]]), 1, dataformats="HW")
    figure = Figure()
    figure.subplots().plot([1, 2])
    spread.writer.add_figure("figure", figure, 1)
    found = spread.read()
    beyond = picture(found.Images("beyond")[0].encoded_image_string)
    assert np.asarray(beyond)[0, :, 0].tolist() == [0, 127, 255]  # as torch: no value wraps around
    shown = picture(found.Images("image")[0].encoded_image_string)
    assert np.array_equal(np.asarray(shown), grey)
    assert set(found.Tags()["images"]) == {"image", "images", "boxes", "figure", "beyond"}


@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_video_is_an_animated_gif_without_moviepy(spread: Spread, kind: str) -> None:
    frames = np.zeros((1, 5, 3, 8, 12), np.uint8)
    for index in range(5):
        frames[0, index, 0] = index * 60
    spread.writer.add_video("video", frames if kind == "uint8" else frames / 255.0, 2, fps=10)
    found = spread.read().Images("video")[0]
    shown = picture(found.encoded_image_string)
    assert (found.step, found.width, found.height) == (2, 12, 8)
    assert (shown.format, shown.n_frames, shown.info["duration"]) == ("GIF", 5, 100)
    shown.seek(4)
    assert abs(int(np.asarray(shown.convert("RGB"))[0, 0, 0]) - 240) <= 2


def test_audio_is_wav(spread: Spread) -> None:
    import io
    import wave

    sound = np.stack([np.linspace(-1, 1, 100), np.full(100, 2.0)], axis=1)
    spread.writer.add_audio("sound", sound, 3, sample_rate=8000)
    found = spread.read().Audio("sound")[0]
    with wave.open(io.BytesIO(found.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (8000, 2, 100)
        samples = np.frombuffer(file.readframes(100), "<i2").reshape(100, 2)
    assert samples[0].tolist() == [-32767, 32767]
    with pytest.raises(ArgumentError, match="channels"):
        spread.writer.add_audio("sound", np.zeros((3, 3)))


@pytest.mark.slow
def test_graph(spread: Spread) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    spread.writer.add_graph(model, torch.zeros(1, 2))
    names = [node.name for node in spread.read().Graph().node]
    assert any("Linear" in name for name in names)


def test_embeddings_are_what_the_projector_reads(spread: Spread) -> None:
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    points = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    spread.writer.add_embedding(points, metadata=["a", "b"], label_img=torch.rand(2, 3, 4, 4), tag="../x")
    spread.step = 9
    spread.writer.add_embedding(np.eye(2))
    config = ProjectorConfig()
    text_format.Parse((spread.folder / "projector_config.pbtxt").read_text(), config)
    first, second = config.embeddings
    assert (spread.folder / first.tensor_path).read_text() == "1.0\t2.0\n3.0\t4.0\n"
    assert (spread.folder / first.metadata_path).read_text() == "a\nb\n"
    assert picture((spread.folder / first.sprite.image_path).read_bytes()).format == "PNG"
    assert second.tensor_path.startswith("00009/")
    inside = {path for path in spread.folder.parent.rglob("*") if path.is_file()}
    assert all(path.is_relative_to(spread.folder) for path in inside)
    assert not [path for path in inside if path.name.startswith(".")]


def test_extra_files_can_travel_another_way_in_the_right_order(tmp_path: Path) -> None:
    sent: list[tuple[str, bytes]] = []
    writer = AgentSummaryWriter(
        lambda *_: None, tmp_path / "tb", lambda: 0, emit_file=lambda *file: sent.append(file)
    )
    writer.add_embedding(np.eye(2), tag="a")
    writer.add_embedding(np.eye(2), tag="b")
    assert [name for name, _ in sent] == [
        "00000/a/tensors.tsv", "projector_config.pbtxt", "00000/b/tensors.tsv", "projector_config.pbtxt",
    ]  # fmt: skip
    assert sent[-1][1].count(b"embeddings {") == 2
    assert not (tmp_path / "tb").exists()


def test_an_unwritable_folder_does_not_end_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    writer = AgentSummaryWriter(lambda *_: None, tmp_path / "file" / "tb", lambda: 0)
    writer.add_embedding(np.eye(2))
    assert "was not written" in caplog.text


def test_flush_and_close_are_harmless(spread: Spread) -> None:
    with spread.writer as writer:
        writer.add_scalar("a", 1.0)
        writer.flush()
    writer.close()
    writer.add_scalar("a", 2.0)
    writer.file_writer.add_summary(_summary("a", 3.0))
    writer.close()
    assert [event.value for event in spread.read().Scalars("a")] == [1.0, 2.0, 3.0]


def _summary(tag: str, value: float) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def event_of(summary: object, wall_time: float, step: int) -> bytes:
    from tensorboardX.proto.event_pb2 import Event

    return bytes(Event(wall_time=wall_time, step=step, summary=parse_summary(summary)).SerializeToString())


def test_summaries_of_tensorflow_as_object_or_bytes(spread: Spread) -> None:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar import metadata

    foreign = Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])
    new_style = Summary()
    value = new_style.value.add(tag="acc", metadata=metadata.create_summary_metadata("", ""))
    value.tensor.dtype = 1
    value.tensor.tensor_content = np.float32(0.75).tobytes()
    assert list(summary_scalars(parse_summary(foreign))) == [("loss", 0.5)]
    assert list(summary_scalars(parse_summary(foreign.SerializeToString()))) == [("loss", 0.5)]
    assert list(summary_scalars(parse_summary(new_style))) == [("acc", 0.75)]
    data = event_of(foreign, 12.5, 3)
    spread.events.append((data, 12.5, 3))
    event = spread.read().Scalars("loss")[0]
    assert (event.step, event.wall_time, event.value) == (3, 12.5, 0.5)
    for wrong in (3, "text", b"\xff\xff"):
        with pytest.raises(ArgumentError):
            event_of(wrong, 0.0, 0)


@pytest.mark.parametrize("content", [{"replay": "2 GiB", "net": 3}, {}])
def test_a_dict_becomes_a_table_of_text(spread: Spread, content: dict[str, object]) -> None:
    data = ExpManager.dict_to_table_text_summary(content, "large")
    spread.events.append((event_of(data, 12.5, 3), 12.5, 3))
    found = spread.read()
    assert plugin_of(found, "large") == "text"
    (event,) = found.Tensors("large")
    assert tensor_util.make_ndarray(event.tensor_proto).tolist() == [
        [name.encode(), str(value).encode()] for name, value in content.items()
    ]
