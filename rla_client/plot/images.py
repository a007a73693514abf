"""RLA's plotter of saved figures: `plot_saved_images`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.database.tree.data_root import check_data_root
from rla_client.database.tree.items import check_table, files_below
from rla_client.plot.rla_plotters import silent, summarize
from rla_client.plot.selected_runs import Selected, select
from rla_client.plot.style import paper_style, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TILE_INCHES = 3.0
MAX_COLUMNS = 4
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")


def plot_saved_images(  # noqa: PLR0913, PLR0917 - RLA's signature
    data_root: str,
    task_table_name: str,
    regs: Sequence[str],
    img_names: Sequence[str],
    hp_filter_dict: Mapping[str, Sequence[Any]] | None = None,
    verbose: bool = False,
    max_keep_num: int = 1,
    summarize_res: bool = True,
) -> Figure | None:
    """Show images from the results of runs.

    Args:
        data_root: the database.
        task_table_name: task table.
        regs: globs below the table.
        img_names: globs of names below a run's results, such as `*-react_func.png`; `**` as in .gitignore.
        hp_filter_dict: {key: allowed values}.
        verbose: print what is left out.
        max_keep_num: number of newest images of each run and glob to show.
        summarize_res: print the number of runs of each glob.

    Returns:
        The figure with all images as tiles; None if nothing matched.

    Raises:
        NoSuchTableError: no such table.
        ArgumentError: `max_keep_num` is below 1.
    """
    if max_keep_num < 1:
        message = f"max_keep_num must be 1 or more, got {max_keep_num}"
        raise ArgumentError(message)
    root = check_data_root(data_root)
    check_table(root, task_table_name)
    runs = select(root, task_table_name, regs, OTHER_RESULTS, hp_filter_dict, print if verbose else silent)
    tiles: list[tuple[str, str]] = []
    for run in runs:
        for name in img_names:
            paths = find_images(run.dirname, name, max_keep_num)
            if not paths:
                print(f"{run.index}: no image fits {name!r}")  # noqa: T201 - as RLA
            tiles += [(_tile_title(run, path), path) for path in paths]
    if summarize_res:
        summarize(regs, runs)
    if not tiles:
        print(f"no image of table {task_table_name} matches")  # noqa: T201
        return None
    with paper_style():
        figure = _draw_tiles(tiles)
    show()
    return figure


def find_images(folder: str, name: str, keep: int) -> list[str]:
    """The newest `keep` images below a folder that match a glob, oldest first."""
    import pathspec

    spec = pathspec.GitIgnoreSpec.from_lines([name if name.startswith("/") else "/" + name])
    paths = [
        path
        for path in files_below(folder)
        if path.lower().endswith(IMAGE_ENDINGS) and spec.match_file(os.path.relpath(path, folder))
    ]
    return sorted(paths, key=lambda path: (os.path.getmtime(path), path))[-keep:]


def _tile_title(run: Selected, path: str) -> str:
    date, _, rest = run.index.rpartition("/")
    return f"{date}/{rest[:15]}\n{os.path.relpath(path, run.dirname)}"


def _draw_tiles(tiles: Sequence[tuple[str, str]]) -> Figure:
    from matplotlib import image as images
    from matplotlib import pyplot as plt

    columns = min(len(tiles), MAX_COLUMNS)
    rows = math.ceil(len(tiles) / columns)
    size = (TILE_INCHES * columns, TILE_INCHES * rows)
    figure: Figure
    figure, axes = plt.subplots(rows, columns, squeeze=False, figsize=size, layout="constrained")
    for place, panel in enumerate(axes.flat):
        panel.axis("off")
        if place < len(tiles):
            title, path = tiles[place]
            panel.set_title(title, fontsize=7)
            try:
                panel.imshow(images.imread(path), cmap="gray")
            except (OSError, ValueError, SyntaxError) as error:
                panel.text(0.5, 0.5, f"cannot be read:\n{error}"[:80], ha="center", va="center", fontsize=6)
    return figure
