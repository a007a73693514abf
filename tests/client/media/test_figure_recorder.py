"""Figures from the user's call to the file, through the real render process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.job import media_job
from rla_client.media import job_sender, render
from rla_client.media.figure_pickle import dump_figure
from rla_client.media.figure_recorder import MatplotlibRecorder
from rla_client.media.image_recorder import ImgRecorder
from rla_client.media.recording_target import bind
from rla_client.media.render import render_figure
from rla_client.media.video_recorder import VideoRecorder

mpl.use("agg")


plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    plt.close("all")


def curves() -> None:
    for number in range(4):
        plt.plot(np.sin(np.linspace(0, 10, 200) + number), label=f"run {number}")


def test_a_figure_looks_as_if_the_caller_had_drawn_it(run: Any, tmp_path: Path) -> None:
    styles = {"font.family": "serif", "axes.facecolor": "0.9", "lines.linewidth": 3.0, "savefig.dpi": 73}
    with plt.rc_context(styles):
        figure, axes = plt.subplots(figsize=(4, 3))
        axes.plot([1, 2, 3], [3, 1, 2], label="ünïcode $x^2$")
        legend = axes.legend()
        options: dict[str, Any] = {
            "bbox_inches": "tight",
            "bbox_extra_artists": (legend,),
            "transparent": True,
        }
        MatplotlibRecorder.save("here", figure, **options)
        figure.savefig(tmp_path / "direct.png", **options)

    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN]
    made, direct = Image.open(run.results / "7-here.png"), Image.open(tmp_path / "direct.png")
    assert (made.size, made.info["dpi"]) == (direct.size, direct.info["dpi"])
    assert made.tobytes() == direct.tobytes()
    assert run.warnings == []


def test_a_font_of_the_callers_is_used(run: Any, tmp_path: Path) -> None:
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


@pytest.mark.slow
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


def test_the_plot_function_runs_once_before_the_call_returns(run: Any) -> None:
    calls: list[int] = []

    path = MatplotlibRecorder.pretty_plot_wrapper("p", lambda: calls.append(1))

    assert calls == [1]
    assert path == str(run.results / "7-p.png")


def test_pretty_sizes_legend_and_labels(run: Any) -> None:
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


@pytest.mark.slow
def test_a_decorated_figure_looks_as_if_the_caller_had_decorated_it(run: Any, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"pretty_plot": True, "legend_outside": True}
    wanted |= {"xlabel": "steps", "ylabel": "loss", "title": "A"}
    MatplotlibRecorder.pretty_plot_wrapper("sent", curves, **wanted)
    MatplotlibRecorder.pretty_plot_wrapper("here", curves, results_dir=tmp_path, **wanted)
    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN]
    made, direct = Image.open(run.results / "7-sent.png"), Image.open(tmp_path / "7-here.png")
    assert made.size == direct.size
    assert made.tobytes() == direct.tobytes()

    plt.figure()  # one that you go on looking at is decorated before your eyes
    MatplotlibRecorder.pretty_plot_wrapper("yours", curves, **wanted)
    assert plt.gca().get_legend() is not None
    assert plt.gca().get_xlabel() == "steps"
    run.work()
    assert Image.open(run.results / "7-yours.png").tobytes() == direct.tobytes()


def test_without_pretty_only_the_legend_is_ours(run: Any) -> None:
    MatplotlibRecorder.pretty_plot_wrapper("p", curves)

    (axes,) = run.figure()["figure"].axes
    assert [text.get_fontsize() for text in axes.get_legend().get_texts()] == [15.0] * 4
    assert axes.get_xlabel() == ""
    assert not axes.xaxis.get_gridlines()[0].get_visible()


def test_the_users_own_figures_stay_and_the_current_one_is_used(run: Any) -> None:
    plt.figure(5, figsize=(3, 2))
    plt.plot([1, 2])

    MatplotlibRecorder.pretty_plot_wrapper("p", lambda: plt.plot([3, 4]))

    (axes,) = run.figure()["figure"].axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[3, 4]]  # the former content was cleared
    assert plt.get_fignums() == [5]
    MatplotlibRecorder.pretty_plot_wrapper("q", lambda: plt.plot([3, 4]), close_all_fig=True)
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_the_drawing_stays_the_current_figure_and_only_the_last_one(run: Any) -> None:
    def several() -> None:
        plt.subplots(2, 2)
        plt.figure(figsize=(3, 2))
        plt.plot([1, 2], label="a")

    for number in range(3):
        MatplotlibRecorder.pretty_plot_wrapper(
            "p", lambda: plt.plot([3, 4], label="b"), xlabel="x", title="t"
        )
        (axes,) = plt.gcf().axes
        assert [line.get_ydata().tolist() for line in axes.lines] == [[3, 4]], "no content of the one before"
        assert (axes.get_xlabel(), axes.get_title()) == ("x", "t")
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["b"]
        assert plt.gcf().get_size_inches().tolist() != [3, 2]
        buffer = io.BytesIO()
        plt.savefig(buffer)
        assert buffer.getvalue().startswith(b"\x89PNG")
        MatplotlibRecorder.pretty_plot_wrapper("p", several)
        assert len(plt.gcf().axes) == 1
        assert len(plt.get_fignums()) == 1, number
    own = plt.figure()
    plt.plot([5])
    MatplotlibRecorder.pretty_plot_wrapper("p", lambda: plt.plot([3]))
    assert plt.get_fignums() == [own.number]
    own.axes[0].plot([6])
    plt.figure()
    plt.close()
    MatplotlibRecorder.pretty_plot_wrapper("p", several)
    assert plt.gcf() is not own
    own.axes[0].plot([7])
    MatplotlibRecorder.pretty_plot_wrapper("p", lambda: plt.plot([3]))
    assert own.axes[0].lines, "drawn on when it was not the current one"
    assert len(plt.get_fignums()) == 2
    MatplotlibRecorder.pretty_plot_wrapper("p", several, close_all_fig=True)
    assert plt.get_fignums() == []


def test_a_backend_with_windows_gets_no_figure_that_it_cannot_show(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plt.rcParams, "backend", "tkagg")
    MatplotlibRecorder.pretty_plot_wrapper("p", lambda: plt.plot([3]))
    assert plt.get_fignums() == []


def test_a_plot_function_that_fails_leaves_no_figure(run: Any) -> None:
    def fail() -> None:
        plt.plot([1])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        MatplotlibRecorder.pretty_plot_wrapper("p", fail)
    assert (plt.get_fignums(), run.jobs) == ([], [])


def test_no_backend_is_chosen_for_the_user() -> None:
    script = """
        import sys, tempfile
        import rla_client.media.figure_recorder
        assert not {"numpy", "matplotlib", "PIL", "torch"} & set(sys.modules), "imported too early"
        import matplotlib
        folder = tempfile.mkdtemp()
        import matplotlib.pyplot as plt
        rla_client.media.figure_recorder.MatplotlibRecorder.pretty_plot_wrapper(
            "x", lambda: plt.plot([1, 2], label="a"), results_dir=folder, pretty_plot=True)
        assert matplotlib.rcParams._get_backend_or_none() is None
        assert open(folder + "/0-x.png", "rb").read(4) == b"\\x89PNG"
    """
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env=environment)


@pytest.mark.slow
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
def test_names(run: Any, name: str, options: dict[str, Any], expected: str) -> None:
    figure = plt.figure()

    path = MatplotlibRecorder.save(name, figure, **options)

    assert path == str(run.results / expected)
    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN]
    assert run.files == [expected]


def test_an_existing_file_with_an_extension_stays_unless_covered(run: Any) -> None:
    (run.results / "a.png").write_bytes(b"old")
    (run.results / "b.png").write_bytes(b"old")
    figure = plt.figure()

    MatplotlibRecorder.save("a.png", figure, add_timestamp=False)
    MatplotlibRecorder.save("b", figure, add_timestamp=False)  # no extension: the newer one wins, as in RLA
    assert [fields["name"] for _, fields in run.jobs] == ["b.png"]
    MatplotlibRecorder.save("a.png", figure, add_timestamp=False, cover=True)
    run.work()

    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in run.results.iterdir())


def test_a_folder_below_the_results_goes_through_the_agent(run: Any, tmp_path: Path) -> None:
    figure = plt.figure()
    MatplotlibRecorder.save("x", figure, results_dir=run.results / "sub")
    MatplotlibRecorder.save("y", figure, results_dir=tmp_path / "else" / "where")

    assert (tmp_path / "else" / "where" / "7-y.png").read_bytes()[:4] == b"\x89PNG"
    assert [fields["name"] for _, fields in run.jobs] == ["sub/7-x.png"]
    assert run.warnings == []


def test_a_figure_only_this_program_can_draw_is_drawn_here_with_one_warning(run: Any) -> None:
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    axes.xaxis.set_major_formatter(lambda value, _: f"<{value}>")

    for name in ("a", "b"):
        MatplotlibRecorder.save(name, figure)

    assert run.files == ["7-a.png", "7-b.png"]
    assert run.jobs == []
    assert len(run.warnings) == 1


class OwnFormatter(mpl.ticker.ScalarFormatter):
    """A class of the user's program."""


def test_a_class_of_the_program_is_drawn_here(run: Any) -> None:
    figure, axes = plt.subplots()
    axes.xaxis.set_major_formatter(OwnFormatter())

    MatplotlibRecorder.save("a", figure)

    assert run.files == ["7-a.png"]


def test_wrong_savefig_options_raise_at_the_call(run: Any) -> None:
    with pytest.raises(TypeError, match="dpii"):
        MatplotlibRecorder.save("a", plt.figure(), dpii=3)
    with pytest.raises(ArgumentError, match="exe"):
        MatplotlibRecorder.save("a", plt.figure(), format="exe")
    assert run.files == []


def test_axes_of_a_part_of_a_figure_stand_for_the_figure(run: Any) -> None:
    del run
    figure = Figure()
    axes: Any = figure.add_subfigure(figure.add_gridspec(1, 2)[0]).subplots()
    assert MatplotlibRecorder.save("part", axes).endswith("part.png")


@pytest.mark.parametrize("figure", [3, "text", [1, 2]])
def test_what_is_no_figure_raises_at_the_call(run: Any, figure: Any) -> None:
    with pytest.raises(ArgumentError, match="figure of matplotlib"):
        MatplotlibRecorder.save("a", figure)
    assert run.warnings == []


@pytest.mark.parametrize("name", ["../x", "/abs", "a//b", "", 3, "a\nb"])
def test_wrong_names_raise_at_the_call(run: Any, name: Any) -> None:
    figure = Figure()
    figure.subplots().plot([1, 2])
    with pytest.raises(ArgumentError):
        MatplotlibRecorder.save(name, figure)
    with pytest.raises(ArgumentError):
        VideoRecorder.save(name, np.zeros((1, 2, 2, 3), np.uint8))
    assert run.jobs == []


def test_without_a_run_a_folder_is_needed(tmp_path: Path) -> None:
    bind(None)
    with pytest.raises(NotConfiguredError):
        MatplotlibRecorder.save("x", plt.figure())
    assert MatplotlibRecorder.save("x", plt.figure(), results_dir=tmp_path) == str(tmp_path / "0-x.png")


def test_without_an_agent_the_caller_draws(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_sender, "AGENT_START_S", 0.0)
    for name in ("a", "b"):
        MatplotlibRecorder.save(name, plt.figure())
    ImgRecorder.save("i", np.full((2, 3), 9, np.uint8))
    VideoRecorder.save("v.gif", np.zeros((2, 4, 4, 3), np.uint8))
    with VideoRecorder("w.gif") as video:
        video.add(np.zeros((4, 4)))

    assert run.files == ["7-a.png", "7-b.png", "7-i.png", "7-v.gif", "7-w.gif"]
    assert (run.jobs, len(run.warnings)) == ([], 1)
    assert np.asarray(Image.open(run.results / "7-i.png")).tolist() == [[9] * 3] * 2


def test_a_removed_results_folder_is_a_warning_and_is_not_made_again(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_sender, "AGENT_START_S", 0.0)
    run.results.rmdir()

    MatplotlibRecorder.save("a", plt.figure())

    assert not run.results.exists()
    assert len(run.warnings) == 2  # no agent, no folder


def test_a_refusing_spool_means_that_the_caller_draws(run: Any) -> None:
    assert run.outbox.stream_folder is not None
    (run.outbox.stream_folder / "blobs").write_text("in the way")

    MatplotlibRecorder.save("a", plt.figure())
    ImgRecorder.save("i", np.zeros((2, 2), np.uint8))

    assert run.files == ["7-a.png", "7-i.png"]
    assert len(run.warnings) == 1


@pytest.mark.usefixtures("run")
def test_a_figure_is_drawn_by_nobody_here(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []
    draw = mpl.figure.Figure.draw

    def draw_and_note(figure: Any, renderer: Any) -> None:
        drawn.append(figure)
        draw(figure, renderer)

    monkeypatch.setattr(mpl.figure.Figure, "draw", draw_and_note)
    MatplotlibRecorder.pretty_plot_wrapper("p", curves, pretty_plot=True)
    assert drawn == []
    plt.figure().savefig(io.BytesIO(), format="png")
    assert len(drawn) == 1, "what would have been noted"


def test_an_interpreter_that_somebody_else_can_exchange(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent would not start it, so the training process makes figures and media, and says so once."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin").chmod(0o777)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    job_sender._own_interpreter_problem.cache_clear()
    try:
        for number in range(2):
            curves()
            MatplotlibRecorder.save(f"curves{number}", plt.gcf())
            ImgRecorder.save(f"image{number}", np.zeros((4, 4, 3), np.uint8))
    finally:
        job_sender._own_interpreter_problem.cache_clear()
    assert run.work() == []
    assert len(list(run.results.glob("7-*.png"))) == 4
    (warning,) = run.warnings
    assert f"{tmp_path / 'bin'} can be written by everybody" in warning


def test_a_figure_that_would_take_minutes_is_refused_at_the_call(run: Any) -> None:
    with pytest.raises(ArgumentError, match=r"700000 x 500 pixels.*\.pdf"):
        MatplotlibRecorder.save("long", Figure(figsize=(7000, 5), dpi=100))
    with pytest.raises(ArgumentError, match="pixels"):
        MatplotlibRecorder.save("fine", Figure(figsize=(10, 10)), dpi=2000)
    MatplotlibRecorder.save("long.pdf", Figure(figsize=(7000, 5)))
    assert [fields["name"] for _, fields in run.jobs] == ["7-long.pdf"]


def test_a_figure_that_its_farthest_text_makes_too_large_is_not_drawn(run: Any) -> None:
    figure = Figure(figsize=(5, 5), dpi=100)
    figure.subplots().text(3000, 0, "far", transform=figure.axes[0].transAxes)
    MatplotlibRecorder.save("far", figure, bbox_inches="tight")
    (result,) = run.work()
    assert result.outcome is JobOutcome.FAILED
    assert "pixels, at most 100000000 are drawn" in result.reason


def test_the_render_process_has_the_same_limits() -> None:
    assert render.MAX_FIGURE_PIXELS == media_job.MAX_FIGURE_PIXELS
    assert render.VECTOR_FORMATS == media_job.VECTOR_FORMATS
