"""Which figures travel, and that a figure's pickle runs nothing, whatever it names, calls or sets."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from support.evil_figures import EVIL, blob, drawn
from support.honest_figures import HONEST, OWN

from rla_client.contract.errors import RlaError
from rla_client.media import render
from rla_client.media.figure_pickle import NotPortableError, dump_figure
from rla_client.media.figure_reader import FigureUnpickler, RefusedError

mpl.use("agg")
from matplotlib import pyplot as plt

pytestmark = pytest.mark.filterwarnings("ignore")
# Reads and draws every blob, and tells which refused and which events an audit hook saw.
READ = """
    import io, json, os, sys
    sys.path.insert(0, sys.argv[2])
    import matplotlib.testing, matplotlib.animation, numpy.testing, matplotlib.pyplot
    from rla_client.media import render
    from support.evil_figures import EVIL
    from pathlib import Path
    made = {name: make(Path(sys.argv[1])) for name, make in EVIL.items()}
    seen, found = [], {}
    watched = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "exec", "socket.")
    write = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    def hook(event, arguments):
        opened = event == "open" and arguments[2] & write and not str(arguments[0]).endswith(".pyc")
        if opened or event.startswith(watched[:5]):
            seen.append(event)
    render.render_figure(io.BytesIO(sys.stdin.buffer.read()), io.BytesIO(), "png")
    sys.addaudithook(hook)
    for name, data in made.items():
        seen.clear()
        try:
            render.render_figure(io.BytesIO(data), io.BytesIO(), "png")
            found[name] = "drawn"
        except Exception as error:
            found[name] = type(error).__name__ + "".join(" " + event for event in seen)
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_no_evil_pickle_gets_anything_run(tmp_path: Path) -> None:
    """Each is refused before anything is looked up, called or written."""
    marker = tmp_path / "marker"
    command = [sys.executable, "-c", textwrap.dedent(READ), str(marker), str(Path(__file__).parents[2])]
    done = subprocess.run(command, input=blob(drawn()), capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert {name: how for name, how in found.items() if how != "RefusedError"} == {}
    assert len(found) >= 40
    assert not marker.exists()


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
def test_every_format_is_drawn_by_a_process_that_may_write_nothing_else(tmp_path: Path, format_: str) -> None:
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


@pytest.mark.parametrize(
    "attempt", ["__import__('os').system('true')", "open(sys.argv[1], 'w')", "__import__('socket').socket()"]
)
def test_the_process_that_draws_may_start_and_write_nothing(tmp_path: Path, attempt: str) -> None:
    """Even where a figure found a way through the rules."""
    script = f"import sys; from rla_client.media import render; render._forbid_programs(); {attempt}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x")], capture_output=True, text=True, check=False
    )
    assert "PermissionError: a figure may not" in done.stderr
    assert list(tmp_path.iterdir()) == []


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
    FigureUnpickler(io.BytesIO(data)).load()


def test_the_refusal_names_what_was_asked_for() -> None:
    with pytest.raises(RefusedError, match=r"os\.system"):
        FigureUnpickler(io.BytesIO(EVIL["os"](Path("x")))).load()
    assert issubclass(NotPortableError, RlaError)
