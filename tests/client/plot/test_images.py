from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.legacy_database import LEGACY_TABLE, entries

from rla_client.contract.errors import ArgumentError
from rla_client.plot import plot_saved_images
from rla_client.plot.images import find_images


def write_image(path: Path, when: float) -> None:
    import numpy as np
    from matplotlib import image

    path.parent.mkdir(parents=True, exist_ok=True)
    image.imsave(path, np.zeros((4, 6, 3)))
    os.utime(path, (when, when))


def test_the_last_images_of_each_glob(seeds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = next((seeds / "results" / "task" / "2026" / "11" / "21").iterdir())
    write_image(folder / "10-f.png", 100)
    write_image(folder / "9-f.png", 50)
    write_image(folder / "deep" / "1-g.png", 10)
    (folder / "note.txt").write_text("no image")
    assert [os.path.basename(path) for path in find_images(str(folder), "*f.png", 1)] == ["10-f.png"]
    assert [os.path.basename(path) for path in find_images(str(folder), "**/*.png", 9)] == [
        "1-g.png",
        "9-f.png",
        "10-f.png",
    ]
    assert find_images(str(folder), "*", 9)[-1].endswith("10-f.png")
    figure = plot_saved_images(str(seeds), "task", ["2026/11/21/*"], ["*-f.png", "deep/*"], max_keep_num=2)
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    assert "no image fits" in capsys.readouterr().out


def test_broken_and_missing_images(seeds: Path) -> None:
    folder = next((seeds / "results" / "task" / "2026" / "11" / "21").iterdir())
    (folder / "x.png").write_bytes(b"no image")
    figure = plot_saved_images(str(seeds), "task", ["2026/*"], ["*.png"], hp_filter_dict={"lr": ["0.1"]})
    assert "cannot be read" in figure.axes[0].texts[0].get_text()
    assert plot_saved_images(str(seeds), "task", ["1999/*"], ["*.png"]) is None
    with pytest.raises(ArgumentError):
        plot_saved_images(str(seeds), "task", ["*"], ["*"], max_keep_num=0)


def test_the_originals_data(legacy: Path) -> None:
    figure = plot_saved_images(str(legacy), LEGACY_TABLE, ["2022/07/27/14-3*"], ["*react_func.png"])
    with_figures = len(entries(legacy, "results", f"{LEGACY_TABLE}/2022/07/27/14-3*"))
    assert sum(bool(axes.images) for axes in figure.axes) == with_figures > 1
