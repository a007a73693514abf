"""Figures as users draw them: those that an agent's process can draw, and those that only the program can."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from cycler import cycler
from matplotlib import collections, colors, dates, offsetbox, patches, patheffects, ticker
from matplotlib import pyplot as plt
from mpl_toolkits.axes_grid1 import ImageGrid, make_axes_locatable

RANDOM = np.random.default_rng(0)
DAYS = [dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc) for day in range(1, 10)]
TABLE = pd.DataFrame({"x": np.tile(np.arange(5), 4), "y": RANDOM.random(20), "h": list("abcd") * 5})
SERIES = pd.Series(RANDOM.random(9), index=pd.date_range("2026-01-01", periods=9))


def shared() -> None:
    figure, axes = plt.subplots(2, 2, sharex=True, sharey="row")
    axes[0, 0].plot([1, 2])
    figure.suptitle("title")
    figure.supxlabel("x")


def legend() -> None:
    _, axes = plt.subplots()
    axes.plot([1, 2], label="line")
    axes.scatter([1], [1], label="points")
    axes.bar([1], [2], label="bar")
    axes.errorbar([1, 2], [1, 2], yerr=[0.1, 0.2], label="error", capsize=3)
    axes.fill_between([0, 1], [1, 2], label="between")
    axes.stem([1, 2], label="stem")
    axes.hist([1, 2, 2], label="hist")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), shadow=True, ncol=2)


def annotated() -> None:
    _, axes = plt.subplots()
    arrow = {"arrowstyle": "->", "connectionstyle": "arc3,rad=.3"}
    axes.annotate("x", (0, 1), xytext=(1, 2), arrowprops=arrow, bbox={"boxstyle": "round"})
    effects = [patheffects.withStroke(linewidth=3, foreground="w")]
    axes.text(0.5, 0.5, r"$\alpha^2$", transform=axes.transAxes, path_effects=effects)
    axes.axhline(1)
    axes.axvspan(0, 0.5, alpha=0.3)
    axes.axline((0, 0), slope=1)
    axes.table([["a", "b"]], loc="top")


def norms() -> None:
    figure, axes = plt.subplots(2, 3)
    kinds = [colors.LogNorm(), colors.SymLogNorm(0.1), colors.PowerNorm(0.5), colors.TwoSlopeNorm(0.5)]
    kinds += [colors.BoundaryNorm([0, 0.5, 1.2], 256), colors.CenteredNorm()]
    for at, norm in zip(axes.flat, kinds, strict=True):
        figure.colorbar(at.imshow(RANDOM.random((5, 5)) + 0.1, norm=norm), ax=at, extend="both")


def scales() -> None:
    _, axes = plt.subplots(2, 2)
    for at, scale in zip(axes.flat, ("log", "symlog", "logit", "asinh"), strict=True):
        at.plot([0.1, 0.5, 0.9])
        at.set_yscale(scale)
        at.grid(which="both")


def contours() -> None:
    figure, axes = plt.subplots()
    axes.clabel(axes.contour(RANDOM.random((6, 6))))
    figure.colorbar(axes.contourf(RANDOM.random((6, 6)), hatches=["/", "\\"]))


def solid() -> None:
    axes: Any = plt.figure().add_subplot(projection="3d")
    x, y = np.meshgrid(range(5), range(5))
    axes.plot_surface(x, y, x * y, cmap="viridis")
    axes.scatter([1], [2], [3])
    axes.plot_wireframe(x, y, x + y)
    axes.bar3d([1], [1], [0], 1, 1, 1)
    axes.contour(x, y, x * y)
    axes.text(1, 1, 1, "t")


def formatters() -> None:
    _, axes = plt.subplots(2, 3)
    kinds: list[Any] = [
        ticker.PercentFormatter(1),
        ticker.EngFormatter("s"),
        ticker.FixedFormatter(["a", "b"]),
    ]
    kinds += [
        ticker.StrMethodFormatter("{x:.1f}"),
        ticker.FormatStrFormatter("%.2f"),
        ticker.ScalarFormatter(),
    ]
    for at, kind in zip(axes.flat, kinds, strict=True):
        at.xaxis.set_major_formatter(kind)
        at.yaxis.set_major_locator(ticker.MultipleLocator(0.5))
        at.minorticks_on()


def dated() -> None:
    figure, axes = plt.subplots()
    axes.plot(DAYS, range(9))
    axes.xaxis.set_major_locator(dates.DayLocator(interval=2))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%d"))
    figure.autofmt_xdate()


def concise() -> None:
    _, axes = plt.subplots()
    axes.plot(np.array(DAYS, dtype="datetime64[s]"), range(9))
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(dates.AutoDateLocator()))


def distributions() -> None:
    _, axes = plt.subplots(2, 2)
    axes[0, 0].boxplot([[1, 2, 3], [2, 3, 4]])
    axes[0, 1].violinplot([[1, 2, 3], [2, 3, 4]])
    axes[1, 0].hexbin(RANDOM.random(50), RANDOM.random(50), gridsize=5)
    axes[1, 1].hist2d(RANDOM.random(50), RANDOM.random(50))


def meshes() -> None:
    _, axes = plt.subplots(2, 3)
    axes[0, 0].pcolormesh(RANDOM.random((4, 4)))
    axes[0, 1].pcolor(RANDOM.random((4, 4)))
    axes[0, 2].quiver([0, 1], [0, 1], [1, 0], [0, 1])
    axes[1, 0].streamplot(np.arange(5), np.arange(5), np.ones((5, 5)), RANDOM.random((5, 5)))
    axes[1, 1].tripcolor([0, 1, 0], [0, 0, 1], [1, 2, 3.0])
    axes[1, 2].pie([1, 2, 3], labels=list("abc"), autopct="%d")


def insets() -> None:
    _, axes = plt.subplots(layout="constrained")
    inner = axes.inset_axes((0.5, 0.5, 0.4, 0.4))
    inner.plot([1, 2])
    axes.indicate_inset_zoom(inner)
    axes.twinx().plot([3, 1])


def mosaic() -> None:
    _, axes = plt.subplot_mosaic("AB;CC", layout="tight")
    image = axes["A"].imshow(
        RANDOM.random((9, 9)), interpolation="bilinear", cmap="gray", extent=(0, 1, 0, 1)
    )
    plt.colorbar(image, ax=axes["A"], orientation="horizontal")


def shapes() -> None:
    _, axes = plt.subplots()
    axes.add_patch(patches.Circle((0.5, 0.5), 0.1))
    axes.add_patch(patches.FancyBboxPatch((0.1, 0.5), 0.2, 0.2))
    axes.add_patch(patches.FancyArrowPatch((0, 0), (1, 1)))
    axes.add_patch(patches.Wedge((0.5, 0.5), 0.1, 0, 90, hatch="x"))
    axes.add_collection(collections.LineCollection([[(0, 0), (1, 0.5)]]))
    axes.add_artist(offsetbox.AnchoredText("x", loc="upper left"))
    image = axes.imshow(RANDOM.random((4, 4)), extent=(0, 1, 0, 1))
    image.set_clip_path(patches.Circle((0.5, 0.5), 0.4, transform=axes.transData))


def masked() -> None:
    _, axes = plt.subplots()
    axes.plot(np.ma.masked_greater(np.arange(5.0), 3))
    axes.imshow(np.ma.masked_less(RANDOM.random((4, 4)), 0.3), cmap=colors.ListedColormap(["r", "g"]))


def divided() -> None:
    figure, axes = plt.subplots()
    image = axes.imshow(RANDOM.random((4, 4)))
    figure.colorbar(image, cax=make_axes_locatable(axes).append_axes("right", size="5%", pad=0.05))


def cycled() -> None:
    mpl.rc("axes", prop_cycle=cycler(color=["r", "g"]) + cycler(ls=["-", "--"]), facecolor="0.9")
    plt.plot([[1, 2], [2, 1]])


HONEST: dict[str, Callable[[], object]] = {
    "line": lambda: plt.plot([1, 2], [3, 4], "o--"),
    "scatter": lambda: plt.scatter(RANDOM.random(9), RANDOM.random(9), c=RANDOM.random(9), marker="^"),
    "bar": lambda: plt.bar(["a", "b"], [3, 4], hatch="/"),
    "image": lambda: (plt.imshow(RANDOM.random((9, 9))), plt.colorbar()),
    "polar": lambda: plt.polar([0, 1, 2], [1, 2, 3]),
    "map": lambda: plt.subplot(projection="mollweide").plot([0, 1], [0, 0.5]),
    "sub-figures": lambda: [part.subplots() for part in plt.figure().subfigures(1, 2)],
    "grid": lambda: ImageGrid(plt.figure(), 111, (2, 2), cbar_mode="single")[0].imshow(RANDOM.random((4, 4))),
    "numpy's functions": lambda: plt.gca().set_yscale("function", functions=(np.sqrt, np.square)),
    "pandas": lambda: TABLE.plot.scatter("x", "y"),
    "pandas' bars": TABLE.groupby("h").y.mean().plot.bar,
    "pandas' dates": SERIES.plot,
    "pandas' periods": lambda: SERIES.set_axis(pd.period_range("2026-01", periods=9, freq="M")).plot(),
    "seaborn's heat map": lambda: sns.heatmap(RANDOM.random((4, 4)), annot=True),
    "seaborn's lines": lambda: sns.lineplot(data=TABLE, x="x", y="y", hue="h"),
    "seaborn's facets": lambda: sns.FacetGrid(TABLE, col="h").map(plt.hist, "y"),
    "seaborn's relations": lambda: sns.relplot(data=TABLE, x="x", y="y", hue="h", col="h"),
    "seaborn's boxes": lambda: sns.boxplot(data=TABLE, x="h", y="y", hue="h"),
    "seaborn's violins": lambda: sns.catplot(data=TABLE, x="h", y="y", kind="violin"),
    "seaborn's pairs": lambda: sns.pairplot(TABLE),
    **{
        made.__name__: made
        for made in (
            shared, legend, annotated, norms, scales, contours, solid, formatters, dated, concise,
            distributions, meshes, insets, mosaic, shapes, masked, divided, cycled,
        )
    },
}  # fmt: skip


class OwnLine(mpl.lines.Line2D):
    """An artist of the program."""


def _formatted(value: float, _position: object) -> str:
    return f"<{value}>"


def _line(**state: object) -> None:
    plt.plot([1, 2])[0].__dict__.update(state)


OWN: dict[str, Callable[[], object]] = {
    "lambda": lambda: plt.gca().xaxis.set_major_formatter(lambda value, _: f"<{value}>"),
    "function": lambda: plt.gca().xaxis.set_major_formatter(ticker.FuncFormatter(_formatted)),
    "class": lambda: plt.gca().add_line(OwnLine([0, 1], [0, 1])),
    "filter": lambda: plt.plot([1, 2])[0].set_agg_filter(lambda image, _: (image, 0, 0)),
    "picker": lambda: plt.plot([1, 2], picker=lambda *_: (True, {})),
    "LaTeX": lambda: plt.title("x", usetex=True),
    "secondary axis": lambda: plt.gca().secondary_xaxis("top", functions=(lambda x: x, lambda x: x)),
    "cloud of attributes": lambda: _line(mine=OwnLine([0], [0])),
}
