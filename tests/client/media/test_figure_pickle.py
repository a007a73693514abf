"""Which figures travel, and that they look the same afterwards."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from support.honest_figures import HONEST, OWN

from rla_client.media import render
from rla_client.media.figure_pickle import NotPortableError, dump_figure

mpl.use("agg")
from matplotlib import pyplot as plt

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_a_figure_looks_the_same_from_its_pickle(name: str) -> None:
    HONEST[name]()
    figure = plt.gcf()
    made, direct = io.BytesIO(), io.BytesIO()
    try:
        data = dump_figure(figure, {})
        with plt.rc_context():
            render.render_figure(io.BytesIO(data), made, "png")
        figure.savefig(direct, format="png")
    finally:
        plt.close("all")
        mpl.rcdefaults()
    assert Image.open(made).tobytes() == Image.open(direct).tobytes()


@pytest.mark.parametrize("name", OWN)
def test_what_only_the_program_can_draw_is_found_out_before_it_is_sent(name: str) -> None:
    OWN[name]()
    try:
        with pytest.raises(NotPortableError):
            dump_figure(plt.gcf(), {})
    finally:
        plt.close("all")
        mpl.rcdefaults()


@pytest.mark.slow
@pytest.mark.parametrize(
    "format_", ["png", "pdf", "svg", "svgz", "eps", "ps", "jpg", "tif", "webp", "gif", "raw"]
)
def test_every_format_is_drawn_by_a_process_of_its_own(tmp_path: Path, format_: str) -> None:
    HONEST["legend"]()
    data = dump_figure(plt.gcf(), {"bbox_inches": "tight", "dpi": 60}, format_=format_)
    plt.close("all")
    request = json.dumps({"task": "figure", "format": format_, "offset": 0})
    out = tmp_path / "out"
    with out.open("wb") as target:
        done = subprocess.run(
            [sys.executable, "-E", render.__file__, request],
            input=data,
            stdout=target,
            stderr=-1,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert out.stat().st_size > 100


def test_latex_is_drawn_by_the_caller() -> None:
    plt.plot([1, 2])
    for format_, styles in (
        ("pgf", {}),
        ("png", {"text.usetex": True}),
        ("ps", {"ps.usedistiller": "ghostscript"}),
    ):
        with plt.rc_context():
            dict.update(mpl.rcParams, styles)
            with pytest.raises(NotPortableError):
                dump_figure(plt.gcf(), {}, format_=format_)
    plt.close("all")


def test_a_function_of_numpy_is_found_whoever_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """pickle would name the first module that has it, the program's own for one."""
    module = type(sys)("aaa_program")
    module.log10 = np.log10  # type: ignore[attr-defined]
    others = dict(sys.modules)
    monkeypatch.setattr(sys, "modules", {"aaa_program": module} | others)
    plt.loglog([1, 10], [1, 10])
    data = dump_figure(plt.gcf(), {})
    plt.close("all")
    assert b"aaa_program" not in data
    pickle.loads(data)
