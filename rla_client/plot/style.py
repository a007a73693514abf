"""Style of plots.

The colours are those of Okabe and Ito (2008), black last; beyond eight curves the line style changes, too.
Sizes suit a figure of 3.3 inches, a column of a paper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
COLUMN_INCHES = 3.3
PAGE_INCHES = 6.9  # two columns and the gap between them
BAND_ALPHA = 0.2
PAPER = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # text stays text in the PDF; publishers refuse type 3
    "svg.fonttype": "none",
}
SERIF = {  # STIX comes with matplotlib and resembles Times
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],
    "mathtext.fontset": "stix",
}


@contextmanager
def paper_style(*, serif: bool = False) -> Iterator[None]:
    """Our settings of matplotlib inside the block; restores the user's afterwards."""
    import matplotlib as mpl

    with mpl.rc_context({**PAPER, **(SERIF if serif else {})}):
        yield


def look(place: int) -> tuple[str, str]:
    """Colour and line style of the n-th curve."""
    return COLOURS[place % len(COLOURS)], LINES[place // len(COLOURS) % len(LINES)]


def legend_columns(labels: Collection[str], width: float, letters: float = 14) -> int:
    """Columns of a legend below a figure of `width` inches; at 7 points an inch has about 14 `letters`."""
    return max(1, min(len(labels), int(width * letters / (max(map(len, labels)) + 5))))


def shorten_steps(axes: Axes) -> None:
    """Write large x values as 200k, 1.5M."""
    from matplotlib.ticker import FuncFormatter

    if max(map(abs, axes.get_xlim())) >= 10_000:  # noqa: PLR2004
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def short_number(value: float) -> str:
    """A number such as `200k`, `1.5M`, `12`."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{letter}"
    return f"{value:.4g}"


def show() -> None:
    """Show the figures on a screen or in a notebook; does nothing with a file backend."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    from rla_client.media.figure_canvas import FILE_BACKENDS

    if mpl.get_backend().lower() not in FILE_BACKENDS:
        plt.show()
