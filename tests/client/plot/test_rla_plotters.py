from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from support.legacy_database import LEGACY_TABLE

from rla_client.contract.errors import ArgumentError, NoSuchTableError
from rla_client.plot import plot_func

BOTH = ["2026/11/21/*", "2026/11/22/*"]


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    plt.close("all")


def test_one_curve_a_setting_with_mean_and_bands(seeds: Path) -> None:
    bands, scores = plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], shaded_std=True)
    assert set(bands) == {f"lr={lr}{suffix}" for lr in ("0.1", "0.01") for suffix in ("-se", "-ss", "-sr")}
    _, mean, error = bands["lr=0.1-se"]
    assert mean.tolist() == [step + 1 for step in range(11)]
    std = math.sqrt(2 / 3)
    assert error.tolist() == pytest.approx([std / math.sqrt(3)] * 11)
    assert scores["lr=0.01-err"] == pytest.approx([21, std / math.sqrt(3)])
    assert scores["lr=0.01-std"] == pytest.approx([21, std])
    assert scores["lr=0.01-range"] == [20, 22]


def test_regs_as_groups_and_missing_split_keys(seeds: Path) -> None:
    bands, scores = plot_func(str(seeds), "task", BOTH, [], ["return"], regs2legends=["slow", "fast"])
    assert set(bands) == {"0-se", "0-sr", "1-se", "1-sr"}
    assert scores["fast-err"][0] == 21
    bands, _ = plot_func(str(seeds), "task", BOTH, ["nope", "net.size"], ["return"])
    assert set(bands) == {"nope=NF.net.size=64-se", "nope=NF.net.size=64-sr"}


def test_one_name_may_stand_without_a_list(seeds: Path) -> None:
    listed = plot_func(str(seeds), "task", ["2026/11/21/*"], ["lr"], ["return"])[1]
    assert plot_func(str(seeds), "task", "2026/11/21/*", "lr", "return")[1] == listed


def legends_of(figure: Figure) -> list[Legend]:
    """Of the figure and its one diagram."""
    (axes,) = figure.axes
    own = axes.get_legend()
    return [*figure.legends, *([own] if own else [])]


@pytest.mark.parametrize("style", [{}, {"legend_outside": False}, {"pretty": True}, {"average_group": False}])
def test_the_figure_stays_the_current_one_with_the_legends_as_given(
    seeds: Path, style: dict[str, Any]
) -> None:
    legends = ["_ours (x) $\\alpha$ " + "long" * 20, "b & <b>"]
    bounds = [(3, "red", "--", "_bound")]
    for _ in range(3):
        plot_func(str(seeds), "task", BOTH, [], ["return"], regs2legends=legends, bound_line=bounds, **style)
    figure = plt.gcf()
    (legend,) = legends_of(figure)
    assert [text.get_text() for text in legend.get_texts()] == [*legends, "_bound"]
    assert len(plt.get_fignums()) == 1
    figure.canvas.draw()
    plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], **style)
    (legend,) = legends_of(plt.gcf())
    number = " (3)" if style.get("average_group", True) else ""
    assert [text.get_text() for text in legend.get_texts()] == [f"lr=0.01{number}", f"lr=0.1{number}"]


def test_the_users_own_figures_are_left_alone(seeds: Path) -> None:
    own = plt.figure()
    for _ in range(2):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["return"])
    assert plt.gcf() is not own
    assert len(plt.get_fignums()) == 2
    plt.close()
    assert plt.gcf() is own
    plot_func(str(seeds), "task", BOTH, ["lr"], ["return"])
    assert len(plt.get_fignums()) == 2


@pytest.mark.parametrize("metrics", [["return"], ["return", "loss"]])
def test_scores_begin_with_the_legend(
    seeds: Path, metrics: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    legends = ["slow", "fast"]
    _, scores = plot_func(str(seeds), "task", BOTH, [], metrics, regs2legends=legends, pretty=True)
    assert {name.split("-")[0] for name in scores} == {*legends}
    assert {"slow-err", "fast-err"} <= scores.keys()
    assert all(line.startswith(("slow-", "fast-")) for line in capsys.readouterr().out.splitlines()[-4:])
    if len(metrics) > 1:
        assert scores["fast-err/return"][0] == 21
        assert scores["fast-err"] == scores["fast-err/loss"], "of the last panel"


def test_several_metrics_in_panels_or_in_one(seeds: Path) -> None:
    bands, _ = plot_func(str(seeds), "task", BOTH, ["lr"], ["return", "loss"])
    assert "return/lr=0.1-se" in bands
    assert bands["lr=0.1-se"] is bands["loss/lr=0.1-se"]
    bands, _ = plot_func(str(seeds), "task", BOTH, ["lr"], ["return", "loss"], split_by_metrics=False)
    assert "lr=0.1 eval:loss-se" in bands
    assert "lr=0.1 eval:return-se" in bands


@pytest.mark.parametrize("allowed", [["0.1"], [0.1], ["1e-1"], 0.1])
def test_hyper_parameter_filter_takes_text_and_numbers(seeds: Path, allowed: Any) -> None:
    bands, _ = plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], hp_filter_dict={"lr": allowed})
    assert set(bands) == {"lr=0.1-se", "lr=0.1-sr"}


def test_scale_bound_and_legend_function(seeds: Path) -> None:
    bands, scores = plot_func(
        str(seeds), "task", BOTH[:1], ["lr"], ["return"], x_bound=50,
        scale_dict={"return": lambda y: y.rolling(1).mean() * 100},
        key_to_legend_fn=lambda values, keys, name, _: f"rate {values['lr']} {name} {len(keys)}",
    )  # fmt: skip
    assert set(bands) == {"rate 0.1 return 1-se", "rate 0.1 return 1-sr"}
    assert scores["rate 0.1 return 1-err"][0] == 600


def test_groups_whose_texts_agree_up_to_a_dot_have_legends_of_their_own(seeds: Path) -> None:
    found = sorted((seeds / "hyperparameter" / "task").rglob("parameter.json"))
    pairs = [("x.b=y", "z"), ("x", "y.b=z"), ('x"', "y"), ("v1.2", "0"), ("v1", "2.0"), ('"x', "y")]
    for path, (one, other) in zip(found, pairs, strict=True):
        path.write_text(json.dumps({"a": one, "b": other}))
    bands, scores = plot_func(str(seeds), "task", BOTH, ["a", "b"], ["return"])
    assert {name.removesuffix("-se") for name in bands if name.endswith("-se")} == {
        'a="x.b=y".b=z', 'a=x.b="y.b=z"', 'a=x".b=y', "a=v1.2.b=0", "a=v1.b=2.0", 'a="\\"x".b=y',
    }  # fmt: skip
    (legend,) = legends_of(plt.gcf())
    assert {text.get_text() for text in legend.get_texts()} == {
        f"{name.removesuffix('-err')} (1)" for name in scores if name.endswith("-err")
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "style",
    [
        {"pretty": True, "resample": 20, "use_marker": True, "legend_ncol": 2},
        {"vary_len_plot": True, "log": True, "tiling": "vertical"},
        {"average_group": False, "skip_legend": True, "title": "t"},
        {"legend_outside": False, "show_number": False, "colors": ["red"], "ylim": (0, 5), "xlim": (0, 50)},
        {
            "bound_line": [(3, "k", "--", "goal")],
            "rescale_idx": 1000,
            "tiling": "horizontal",
            "figsize": (4, 2),
        },
        {"smooth_step": 5.0, "resample": 30, "markers": ["o"], "use_marker": True},
    ],
)
def test_every_style_draws_and_saves(seeds: Path, style: dict[str, object]) -> None:
    for name in ("deep/a.png", "a.pdf"):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["return", "loss"], save_name=name, **style)
        assert (seeds / "results" / "easy_plot" / name).stat().st_size > 1000
    assert not list(seeds.rglob("progress-*"))


def test_wrong_wishes_are_refused_in_words(seeds: Path) -> None:
    with pytest.raises(ArgumentError, match=r"the metric 'retrun'\nhint: did you mean 'return'"):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["retrun"])
    with pytest.raises(ArgumentError, match="style options"):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], colour="red")
    with pytest.raises(ArgumentError, match="resample"):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], vary_len_plot=True, resample=5)
    with pytest.raises(ArgumentError, match="belongs to one"):
        plot_func(str(seeds), "task", ["2026/*", "2026/11/*"], ["lr"], ["return"])
    with pytest.raises(ArgumentError, match="one legend"):
        plot_func(str(seeds), "task", BOTH, [], ["return"], regs2legends=["a"])
    with pytest.raises(NoSuchTableError):
        plot_func(str(seeds), "nope", BOTH, ["lr"], ["return"])
    with pytest.raises(ArgumentError):
        plot_func(str(seeds), "task", BOTH, ["lr"], ["return"], save_name="../../x.png")


def test_the_originals_data(legacy: Path) -> None:
    bands, scores = plot_func(
        str(legacy),
        LEGACY_TABLE,
        ["2022/07/27/*", "2022/06/2*"],
        ["learning_rate"],
        ["perf/mse"],
        save_name="x.png",
    )
    assert set(bands) == {"learning_rate=0.0001-se", "learning_rate=0.0001-sr"}
    assert 0 < scores["learning_rate=0.0001-err"][0] < 1
