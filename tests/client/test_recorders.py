"""Figures, images and videos from the user's call to the file, through the real render process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image

from rla_agent.sinks.figure import FigureResult, parse_figure, run_figure
from rla_agent.sinks.files import Outcome
from rla_agent.sinks.media import sweep_slots
from rla_client import handover, media_slots
from rla_client import video as video_module
from rla_client.clock import time_step_holder
from rla_client.config import AgentConfig
from rla_client.errors import ArgumentError, NotConfiguredError
from rla_client.figure_pickle import dump_figure
from rla_client.outbox import Outbox
from rla_client.places import Places
from rla_client.protocol import FrameKind, iter_frames, unpack
from rla_client.recorders import ImgRecorder, MatplotlibRecorder, RecordingTarget, VideoRecorder, bind
from rla_client.render import FigureUnpickler, ffmpeg_path, render_figure
from rla_client.simple_plots import simple_hist, simple_plot, simple_scatter

mpl.use("agg")
plt = pytest.importorskip("matplotlib.pyplot")


@dataclass
class OpenRun:
    """A run as the manager opens it, and the agent's part on demand."""

    results: Path
    outbox: Outbox
    warnings: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> list[tuple[str, dict[str, Any]]]:
        assert self.outbox.stream_folder is not None
        found = []
        for segment in sorted(self.outbox.stream_folder.glob("*.seg")):
            frames = iter_frames(segment.read_bytes())
            found += [tuple(unpack(frame.payload)) for frame in frames if frame.kind == FrameKind.JOB]
        return found

    def work(self) -> list[FigureResult]:
        """Do all jobs as the agent does."""
        blobs = self.outbox.blobs_folder
        assert blobs is not None
        results = []
        for kind, fields in self.jobs:
            results.append(run_figure(parse_figure(kind, fields), blobs, self.results, sys.executable))
        return results

    def figure(self) -> Any:
        """The only figure in the spool."""
        assert self.outbox.blobs_folder is not None
        ((_, fields),) = self.jobs
        with (self.outbox.blobs_folder / fields["blob"]).open("rb") as blob:
            return FigureUnpickler(blob).load()


@pytest.fixture
def run(places: Places, tmp_path: Path) -> Iterator[OpenRun]:
    opened = OpenRun(tmp_path / "results", Outbox(places, {"pid": os.getpid()}, AgentConfig(autostart=False)))
    opened.results.mkdir()
    bind(RecordingTarget(opened.results, opened.outbox, opened.warnings.append))
    time_step_holder.set_time(7)
    yield opened
    bind(None)
    time_step_holder.set_time(0)
    plt.close("all")
    stream = opened.outbox.stream_folder
    opened.outbox.release()
    if stream is not None:
        sweep_slots(stream.name)


def curves() -> None:
    for number in range(4):
        plt.plot(np.sin(np.linspace(0, 10, 200) + number), label=f"run {number}")


def files(run: OpenRun) -> list[str]:
    return sorted(str(path.relative_to(run.results)) for path in run.results.rglob("*") if path.is_file())


# -- figures ----------------------------------------------------------------------------------


def test_a_figure_looks_as_if_the_caller_had_drawn_it(run: OpenRun, tmp_path: Path) -> None:
    styles = {"font.family": "serif", "axes.facecolor": "0.9", "lines.linewidth": 3.0, "savefig.dpi": 73}
    with plt.rc_context(styles):
        figure, axes = plt.subplots(figsize=(4, 3))
        axes.plot([1, 2, 3], [3, 1, 2], label="ünïcode $x^2$")
        legend = axes.legend()
        options = {"bbox_inches": "tight", "bbox_extra_artists": (legend,), "transparent": True}
        MatplotlibRecorder.save("here", figure, **options)
        figure.savefig(tmp_path / "direct.png", **options)

    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN]
    made, direct = Image.open(run.results / "7-here.png"), Image.open(tmp_path / "direct.png")
    assert (made.size, made.info["dpi"]) == (direct.size, direct.info["dpi"])
    assert made.tobytes() == direct.tobytes()
    assert run.warnings == []


def test_a_font_of_the_callers_is_used(run: OpenRun, tmp_path: Path) -> None:
    from fontTools.ttLib import TTFont
    from matplotlib import font_manager

    own = tmp_path / "own.ttf"
    with TTFont(font_manager.findfont("DejaVu Sans Mono")) as font:
        for entry in font["name"].names:
            if entry.nameID in {1, 4, 16}:
                entry.string = "Own Font"
        font.save(own)
    before = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(str(own))
    try:
        figure = plt.figure(figsize=(3, 1))
        figure.text(0.1, 0.5, "in its own font iiiWWW", family="Own Font")
        MatplotlibRecorder.save("x", figure)
        figure.savefig(tmp_path / "direct.png")
    finally:
        font_manager.fontManager.ttflist[:] = before
    figure.texts[0].set_family("DejaVu Sans")
    figure.savefig(tmp_path / "other.png")
    run.work()

    made, direct, other = (
        Image.open(path).tobytes()
        for path in (run.results / "7-x.png", tmp_path / "direct.png", tmp_path / "other.png")
    )
    assert made == direct
    assert made != other


def gallery() -> dict[str, Callable[[], object]]:
    import pandas as pd
    import seaborn as sns

    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": np.tile(np.arange(5), 4), "y": random.random(20), "h": list("abcd") * 5})
    days = pd.date_range("2026-01-01", periods=9)
    return {
        "heat map": lambda: sns.heatmap(random.random((4, 4)), annot=True),
        "seaborn": lambda: sns.lineplot(data=table, x="x", y="y", hue="h"),
        "facets": lambda: sns.FacetGrid(table, col="h").map(plt.hist, "y"),
        "dates": lambda: pd.Series(random.random(9), index=days).plot(),
        "3d": lambda: plt.figure().add_subplot(projection="3d").plot([0, 1], [0, 1], [0, 1]),
        "image": lambda: (plt.imshow(random.random((9, 9))), plt.colorbar()),
        "constrained": lambda: plt.subplots(2, 2, constrained_layout=True)[1][0, 0].twinx().set_yscale("log"),
        "polar": lambda: plt.polar([0, 1, 2], [1, 2, 3]),
        "arrows": lambda: plt.annotate("x", (0, 0), xytext=(1, 1), arrowprops={"arrowstyle": "->"}),
        "sub-figures": lambda: [part.subplots() for part in plt.figure().subfigures(1, 2)],
    }


@pytest.mark.filterwarnings("ignore")
def test_figures_of_many_kinds_can_travel() -> None:
    for name, draw in gallery().items():
        draw()
        figure = plt.gcf()
        made, direct = io.BytesIO(), io.BytesIO()
        data = dump_figure(figure, {})
        with plt.rc_context():
            render_figure(io.BytesIO(data), made, "png")
        figure.savefig(direct, format="png")
        plt.close("all")
        assert Image.open(made).tobytes() == Image.open(direct).tobytes(), name


def test_the_plot_function_runs_once_before_the_call_returns(run: OpenRun) -> None:
    calls: list[int] = []

    path = MatplotlibRecorder.pretty_plot_wrapper("p", lambda: calls.append(1))

    assert calls == [1]
    assert path == str(run.results / "7-p.png")
    assert plt.get_fignums() == []


def test_pretty_sizes_legend_and_labels(run: OpenRun) -> None:
    MatplotlibRecorder.pretty_plot_wrapper(
        "p", curves, pretty_plot=True, legend_outside=True, xlabel="steps", ylabel="loss", title="A title"
    )

    payload = run.figure()
    (axes,) = payload["figure"].axes
    legend = axes.get_legend()
    assert [text.get_fontsize() for text in legend.get_texts()] == [15.0] * 4
    assert legend.get_bbox_to_anchor().transformed(axes.transAxes.inverted()).p0 == pytest.approx([1, 1])
    assert payload["options"] == {"bbox_inches": "tight", "bbox_extra_artists": (legend,)}
    assert (axes.get_xlabel(), axes.xaxis.label.get_fontsize()) == ("steps", 18.0)
    assert (axes.get_ylabel(), axes.yaxis.label.get_fontsize()) == ("loss", 18.0)
    assert (axes.get_title(), axes.title.get_fontsize()) == ("A title", 13.0)
    assert {tick.get_fontsize() for tick in axes.get_xticklabels()} == {14.0}
    assert axes.xaxis.get_gridlines()[0].get_visible()


def test_without_pretty_only_the_legend_is_ours(run: OpenRun) -> None:
    MatplotlibRecorder.pretty_plot_wrapper("p", curves)

    (axes,) = run.figure()["figure"].axes
    assert [text.get_fontsize() for text in axes.get_legend().get_texts()] == [15.0] * 4
    assert axes.get_xlabel() == ""
    assert not axes.xaxis.get_gridlines()[0].get_visible()


def test_the_users_own_figures_stay_and_the_current_one_is_used(run: OpenRun) -> None:
    plt.figure(5, figsize=(3, 2))
    plt.plot([1, 2])

    MatplotlibRecorder.pretty_plot_wrapper("p", lambda: plt.plot([3, 4]))

    (axes,) = run.figure()["figure"].axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[3, 4]]  # the former content was cleared
    assert plt.get_fignums() == [5]
    MatplotlibRecorder.pretty_plot_wrapper("q", lambda: plt.plot([3, 4]), close_all_fig=True)
    assert plt.get_fignums() == []


def test_a_plot_function_that_fails_leaves_no_figure(run: OpenRun) -> None:
    def fail() -> None:
        plt.plot([1])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        MatplotlibRecorder.pretty_plot_wrapper("p", fail)
    assert (plt.get_fignums(), run.jobs) == ([], [])


def test_no_backend_is_chosen_for_the_user() -> None:
    script = """
        import sys, tempfile
        import rla_client.recorders
        assert not {"numpy", "matplotlib", "PIL", "torch"} & set(sys.modules), "imported too early"
        import matplotlib
        folder = tempfile.mkdtemp()
        import matplotlib.pyplot as plt
        rla_client.recorders.MatplotlibRecorder.pretty_plot_wrapper(
            "x", lambda: plt.plot([1, 2], label="a"), results_dir=folder, pretty_plot=True)
        assert matplotlib.rcParams._get_backend_or_none() is None
        assert open(folder + "/0-x.png", "rb").read(4) == b"\\x89PNG"
    """
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=environment)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("loss", {}, "7-loss.png"),
        ("a/b/loss", {}, "a/b/7-loss.png"),
        ("loss.pdf", {}, "7-loss.pdf"),
        ("loss.SVG", {}, "7-loss.SVG"),
        ("lr0.001", {}, "7-lr0.001.png"),
        ("loss", {"add_timestamp": False}, "loss.png"),
        ("loss", {"format": "pdf"}, "7-loss.pdf"),
    ],
)
def test_names(run: OpenRun, name: str, options: dict[str, Any], expected: str) -> None:
    figure = plt.figure()

    path = MatplotlibRecorder.save(name, figure, **options)

    assert path == str(run.results / expected)
    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN]
    assert files(run) == [expected]


def test_an_existing_file_with_an_extension_stays_unless_covered(run: OpenRun) -> None:
    (run.results / "a.png").write_bytes(b"old")
    (run.results / "b.png").write_bytes(b"old")
    figure = plt.figure()

    MatplotlibRecorder.save("a.png", figure, add_timestamp=False)
    MatplotlibRecorder.save("b", figure, add_timestamp=False)  # no extension: the newer one wins, as in RLA
    assert [fields["name"] for _, fields in run.jobs] == ["b.png"]
    MatplotlibRecorder.save("a.png", figure, add_timestamp=False, cover=True)
    run.work()

    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in run.results.iterdir())


def test_a_folder_below_the_results_goes_through_the_agent(run: OpenRun, tmp_path: Path) -> None:
    figure = plt.figure()
    MatplotlibRecorder.save("x", figure, results_dir=run.results / "sub")
    MatplotlibRecorder.save("y", figure, results_dir=tmp_path / "else" / "where")

    assert (tmp_path / "else" / "where" / "7-y.png").read_bytes()[:4] == b"\x89PNG"
    assert [fields["name"] for _, fields in run.jobs] == ["sub/7-x.png"]
    assert run.warnings == []


def test_a_figure_only_this_program_can_draw_is_drawn_here_with_one_warning(run: OpenRun) -> None:
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    axes.xaxis.set_major_formatter(lambda value, _: f"<{value}>")

    for name in ("a", "b"):
        MatplotlibRecorder.save(name, figure)

    assert files(run) == ["7-a.png", "7-b.png"]
    assert run.jobs == []
    assert len(run.warnings) == 1


class OwnFormatter(mpl.ticker.ScalarFormatter):  # type: ignore[misc]
    """A class of the user's program."""


def test_a_class_of_the_program_is_drawn_here(run: OpenRun) -> None:
    figure, axes = plt.subplots()
    axes.xaxis.set_major_formatter(OwnFormatter())

    MatplotlibRecorder.save("a", figure)

    assert files(run) == ["7-a.png"]


def test_wrong_savefig_options_raise_at_the_call(run: OpenRun) -> None:
    with pytest.raises(TypeError, match="dpii"):
        MatplotlibRecorder.save("a", plt.figure(), dpii=3)
    with pytest.raises(ArgumentError, match="exe"):
        MatplotlibRecorder.save("a", plt.figure(), format="exe")
    assert files(run) == []


@pytest.mark.parametrize("name", ["../x", "/abs", "a//b", "", 3, "a\nb"])
def test_wrong_names_raise_at_the_call(run: OpenRun, name: Any) -> None:
    for save in (MatplotlibRecorder.save, VideoRecorder.save):
        with pytest.raises(ArgumentError):
            save(name, np.zeros((1, 2, 2, 3), np.uint8))
    assert run.jobs == []


def test_without_a_run_a_folder_is_needed(tmp_path: Path) -> None:
    bind(None)
    with pytest.raises(NotConfiguredError):
        MatplotlibRecorder.save("x", plt.figure())
    assert MatplotlibRecorder.save("x", plt.figure(), results_dir=tmp_path) == str(tmp_path / "0-x.png")


def test_without_an_agent_the_caller_draws(run: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "AGENT_START_S", 0.0)
    for name in ("a", "b"):
        MatplotlibRecorder.save(name, plt.figure())
    ImgRecorder.save("i", np.full((2, 3), 9, np.uint8))
    VideoRecorder.save("v.gif", np.zeros((2, 4, 4, 3), np.uint8))
    with VideoRecorder("w.gif") as video:
        video.add(np.zeros((4, 4)))

    assert files(run) == ["7-a.png", "7-b.png", "7-i.png", "7-v.gif", "7-w.gif"]
    assert (run.jobs, len(run.warnings)) == ([], 1)
    assert np.asarray(Image.open(run.results / "7-i.png")).tolist() == [[9] * 3] * 2


def test_a_removed_results_folder_is_a_warning_and_is_not_made_again(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "AGENT_START_S", 0.0)
    run.results.rmdir()

    MatplotlibRecorder.save("a", plt.figure())

    assert not run.results.exists()
    assert len(run.warnings) == 2  # no agent, no folder


def test_a_refusing_spool_means_that_the_caller_draws(run: OpenRun) -> None:
    assert run.outbox.stream_folder is not None
    (run.outbox.stream_folder / "blobs").write_text("in the way")

    MatplotlibRecorder.save("a", plt.figure())
    ImgRecorder.save("i", np.zeros((2, 2), np.uint8))

    assert files(run) == ["7-a.png", "7-i.png"]
    assert len(run.warnings) == 1


def test_simple_plots(run: OpenRun) -> None:
    simple_plot("p", data=[[1, 2], [2, 1]], labels=["a", "b"], xlabel="x", ylabel="y")
    simple_plot("q", x=[[1, 2]], y=[[3, 4]], labels=["a"], colors=["r"], styles=["x--"], pretty=True)
    simple_hist("h", [[1, 2, 2], [3]], labels=["a", "b"])
    simple_scatter("s", [np.zeros((3, 2)), np.ones((3, 2))], ["A", "B"], pretty=True)
    with pytest.raises(ArgumentError):
        simple_plot("nothing")

    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN] * 4
    assert files(run) == ["h.png", "p.png", "q.pdf", "s.pdf"]


# -- images -----------------------------------------------------------------------------------

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
    (Image.fromarray(RGB).convert("P", palette=Image.Palette.ADAPTIVE), None),
    ([[0, 100], [200, 50]], np.array([[0, 100], [200, 50]])),
]


@pytest.mark.parametrize("number", range(len(IMAGES)))
def test_images_of_any_kind(run: OpenRun, number: int) -> None:
    image, expected = IMAGES[number]

    ImgRecorder.save("i", image)

    (result,) = run.work()
    assert result.outcome is Outcome.WRITTEN, result
    found = np.asarray(Image.open(run.results / "7-i.png"))
    if expected is not None:
        assert found.tolist() == expected.tolist()


def test_what_is_drawn_into_an_array_later_does_not_matter(run: OpenRun) -> None:
    image = RGB.copy()
    ImgRecorder.save("i", image)
    image[:] = 0
    run.work()

    assert np.asarray(Image.open(run.results / "7-i.png")).tolist() == RGB.tolist()


def test_image_formats(run: OpenRun) -> None:
    rgba = np.full((8, 8, 4), 200, np.uint8)
    for extension in ("png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"):
        ImgRecorder.save(f"i.{extension}", rgba)

    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN] * 8
    for path in run.results.iterdir():
        assert abs(int(np.asarray(Image.open(path).convert("RGB"))[4, 4, 0]) - 200) < 4


@pytest.mark.parametrize("image", [np.zeros((2, 2, 2)), np.zeros(3), np.zeros((0, 2, 3)), np.array([["a"]]), "text"])
def test_what_is_no_image_raises_at_the_call(run: OpenRun, image: Any) -> None:
    with pytest.raises(ArgumentError):
        ImgRecorder.save("i", image)
    assert run.jobs == []


# -- videos -----------------------------------------------------------------------------------


def frames_of(path: Path, width: int, height: int) -> np.ndarray[Any, Any]:
    command = [ffmpeg_path(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def moving(count: int, height: int, width: int) -> np.ndarray[Any, Any]:
    """Frame t is grey of value 10 t."""
    levels = (np.arange(count) * 10 % 250).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (count, height, width, 3)).copy()


def levels_of(frames: np.ndarray[Any, Any]) -> list[int]:
    return [round(float(frame[: len(frame) // 2].mean()) / 10) * 10 for frame in frames]


@pytest.mark.parametrize("kind", ["array", "list", "channels first", "float", "torch", "grey"])
def test_an_mp4_has_the_frames_in_order(run: OpenRun, kind: str) -> None:
    video = moving(12, 32, 48)
    given: Any = {
        "array": video,
        "list": list(video),
        "channels first": video.transpose(0, 3, 1, 2),
        "float": video / 255.0,
        "torch": torch.from_numpy(video),
        "grey": video[..., 0],
    }[kind]

    path = VideoRecorder.save("v", given, fps=12)

    (result,) = run.work()
    assert (result.outcome, path) == (Outcome.WRITTEN, str(run.results / "7-v.mp4")), result
    assert levels_of(frames_of(Path(path), 48, 32)) == levels_of(video)


def test_odd_sizes_are_padded(run: OpenRun) -> None:
    path = VideoRecorder.save("v", moving(5, 31, 47))
    run.work()

    assert levels_of(frames_of(Path(path), 48, 32)[:, :30, :46]) == levels_of(moving(5, 31, 47))


def test_a_gif_has_its_frames_and_pace(run: OpenRun) -> None:
    path = VideoRecorder.save("v.gif", moving(5, 31, 47), fps=10)
    run.work()

    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (5, (47, 31), 100)


def test_frame_by_frame(run: OpenRun) -> None:
    video = moving(8, 32, 32)
    with VideoRecorder("v", fps=8) as recorder:
        time_step_holder.set_time(99)
        for frame in video:
            recorder.add(frame)
            frame[:] = 0
        assert run.jobs == []
    assert recorder.close() == recorder.path == str(run.results / "7-v.mp4")
    run.work()

    assert levels_of(frames_of(Path(recorder.path), 32, 32)) == levels_of(moving(8, 32, 32))


def test_without_ffmpeg_a_gif_is_written(run: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", "/nowhere")
    video_module._has_ffmpeg.cache_clear()
    try:
        paths = [VideoRecorder.save(name, moving(3, 16, 16)) for name in ("a.mp4", "b", "c.gif")]
    finally:
        video_module._has_ffmpeg.cache_clear()

    assert [os.path.basename(path) for path in paths] == ["7-a.gif", "7-b.gif", "7-c.gif"]
    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN] * 3
    assert len(run.warnings) == 1


def test_frames_that_do_not_fit_raise(run: OpenRun) -> None:
    with pytest.raises(ArgumentError, match="frame 1"):
        VideoRecorder.save("v", [np.zeros((2, 2)), np.zeros((3, 2))])
    with pytest.raises(ArgumentError, match="fps"):
        VideoRecorder.save("v", moving(2, 4, 4), fps=0)
    with pytest.raises(ArgumentError):
        VideoRecorder.save("v", [])
    recorder = VideoRecorder("v")
    recorder.add(np.zeros((2, 2)))
    with pytest.raises(ArgumentError, match="frame 1"):
        recorder.add(np.zeros((2, 3)))
    recorder.close()
    with pytest.raises(ArgumentError, match="closed"):
        recorder.add(np.zeros((2, 2)))


def test_a_video_without_frames_is_no_file_and_no_blob(run: OpenRun) -> None:
    with VideoRecorder("v"):
        pass

    assert (run.jobs, files(run)) == ([], [])


def test_large_videos_go_through_warm_shared_memory(
    run: OpenRun, wait_until: Callable[..., Any]
) -> None:
    video = moving(40, 128, 128)  # 1.9 MB
    assert run.outbox.stream_folder is not None
    stream = run.outbox.stream_folder.name
    VideoRecorder.prepare(video.shape)
    wait_until(lambda: handover._state.slots is not None and len(handover._state.slots._slots) == 1)

    VideoRecorder.save("a", video)
    wait_until(lambda: len(handover._state.slots._slots) == 2)  # a second one, while the first is busy
    VideoRecorder.save("b", video)
    VideoRecorder.save("c", video)  # both are busy
    sources = ["slot" if "slot" in fields else "blob" for _, fields in run.jobs]
    assert sources == ["slot", "slot", "blob"]
    video[:] = 0
    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN] * 3
    VideoRecorder.save("d", video)  # given back
    assert "slot" in run.jobs[-1][1]

    for name in "abc":
        assert levels_of(frames_of(run.results / f"7-{name}.mp4", 128, 128)) == levels_of(moving(40, 128, 128))
    assert sweep_slots(stream) == 2
    assert not [name for name in os.listdir("/dev/shm") if stream in name]


def test_a_replay_after_the_slot_was_used_again_writes_nothing_wrong(
    run: OpenRun, wait_until: Callable[..., Any]
) -> None:
    video = moving(40, 128, 128)
    VideoRecorder.prepare(video.shape)
    wait_until(lambda: handover._state.slots is not None and handover._state.slots._slots)
    VideoRecorder.save("a", video)
    run.work()
    VideoRecorder.save("b", video)
    (run.results / "7-a.mp4").unlink()

    first, second = run.work()

    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.WRITTEN)
    assert files(run) == ["7-b.mp4"]


def test_a_forked_child_does_not_use_its_parents_slots(places: Places) -> None:
    slots = media_slots.MediaSlots("forked")
    thread = slots.prepare(2 << 20)
    assert thread is not None
    thread.join(10)
    child = os.fork()
    if child == 0:
        os._exit(0 if slots.fill(1 << 20, lambda _memory: None) is None else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert slots.fill(1 << 20, lambda _memory: None) is not None
    assert sweep_slots("forked") == 1


def test_short_shared_memory_means_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = media_slots.MediaSlots("short")
    room = os.statvfs("/dev/shm")
    thread = slots.prepare(room.f_bavail * room.f_frsize // 4 + 1)
    assert thread is not None
    thread.join(10)

    assert slots.fill(1 << 20, lambda _memory: None) is None
    assert sweep_slots("short") == 0


def test_a_figure_costs_little_beyond_its_drawing(run: OpenRun) -> None:
    def best(call: Callable[[], object]) -> float:
        taken = []
        for _ in range(7):
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
        return min(taken)

    def draw_alone() -> None:
        plt.close("all")
        plt.figure()
        curves()

    drawing = best(draw_alone)
    plt.close("all")
    wrapped = best(lambda: MatplotlibRecorder.pretty_plot_wrapper("p", curves, pretty_plot=True))

    figure = plt.figure()
    curves()
    direct = best(lambda: figure.savefig(io.BytesIO(), format="png"))
    assert wrapped - drawing < direct
