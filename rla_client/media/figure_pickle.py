"""Pickles of matplotlib figures.

`dump_figure` costs the caller a few milliseconds, a tenth of the time for drawing. A figure can be sent if it
consists of objects of the standard library and of LIBRARIES, installed in the interpreter itself: the render
process has neither PYTHONPATH nor the script's folder. Anything else (a lambda, a class of the program,
LaTeX) raises NotPortableError, and the caller draws the figure itself.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import pickle
import site
import sys
import sysconfig
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text

from rla_client.contract.errors import RlaError

PROTOCOL = 5
MAX_FIGURE_BYTES = 256 << 20  # rla_agent.jobs.render_job takes no more
# Libraries whose objects a figure may contain; others may need what the render process does not have.
LIBRARIES = frozenset(
    {"PIL", "cycler", "dateutil", "matplotlib", "mpl_toolkits", "numpy", "pandas", "pytz", "seaborn"}
)
DRAWING = ("matplotlib", "numpy", "PIL")  # which the render process imports for each figure
LATEX_FORMATS = ("pgf",)
# Options of Figure.savefig and its formats, without `backend`, which names a module to import.
SAVEFIG_OPTIONS = frozenset({
    "bbox_extra_artists", "bbox_inches", "dpi", "edgecolor", "facecolor", "metadata", "orientation",
    "pad_inches", "papertype", "pil_kwargs", "transparent",
})  # fmt: skip
# Settings that are not styles: they open windows, choose programs or name folders.
PROGRAM_SETTINGS = (
    "animation.", "backend", "datapath", "interactive", "keymap.", "pgf.", "savefig.directory",
    "svg.image_inline", "toolbar", "webagg.",
)  # fmt: skip
# A request to open a window; pandas' copy of the data for further plots.
NOT_SENT = ("_restore_to_pylab", "_plot_data")


class NotPortableError(RlaError):
    """A figure cannot be drawn by another process; the text says why."""


def dump_figure(
    figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None = None, format_: str = "png"
) -> bytes:
    """Serialise a figure, its savefig options, and the styles and fonts in force.

    Args:
        figure: any matplotlib figure; its canvas and pyplot window are left out.
        options: keyword arguments of `savefig`; artists among them stay those of the figure. With options
            other than SAVEFIG_OPTIONS the caller draws, so that a mistake is reported where it was made.
        decoration: arguments for `render.decorate` in the render process.
        format_: format of the file.

    Raises:
        NotPortableError: the caller has to draw the figure.
    """
    from matplotlib import font_manager  # noqa: PLC0415 - searches all fonts

    _check_request(options, format_)
    data = _pickle({
        "figure": figure,
        "options": options,
        "rc": {key: value for key, value in dict.items(mpl.rcParams) if not key.startswith(PROGRAM_SETTINGS)},
        "fonts": [entry.fname for entry in font_manager.fontManager.ttflist],
        "decoration": decoration,
    })  # fmt: skip
    if len(data) > MAX_FIGURE_BYTES:
        raise NotPortableError(f"it has {len(data) >> 20} MiB of data")
    return data


def _check_request(options: dict[str, Any], format_: str) -> None:
    if mpl.rcParams["text.usetex"] or mpl.rcParams["ps.usedistiller"] or format_ in LATEX_FORMATS:
        raise NotPortableError("LaTeX or ghostscript draws it")
    if not options.keys() <= SAVEFIG_OPTIONS:
        raise NotPortableError(f"it asks for other options than {', '.join(sorted(SAVEFIG_OPTIONS))}")
    problem = interpreter_problem() or next(filter(None, map(_library_problem, DRAWING)), None)
    if problem:
        raise NotPortableError(problem)


def _pickle(payload: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    collecting = gc.isenabled()
    gc.disable()  # a collection here would cost more than the pickling
    try:
        _FigurePickler(buffer, protocol=PROTOCOL).dump(payload)
    except NotPortableError:
        raise
    except Exception as error:  # artists and formatters raise whatever they like
        raise NotPortableError(f"it cannot be pickled: {type(error).__name__}: {error}") from error
    finally:
        if collecting:
            gc.enable()
    return buffer.getvalue()


class _FigurePickler(pickle.Pickler):
    """Refuses objects that the render process could not load or draw."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as in the base class
        if isinstance(value, np.ufunc):  # in old releases, ufuncs have no module
            return getattr, (np, value.__name__)
        if value is np:
            return importlib.import_module, ("numpy",)
        if hasattr(value, "__qualname__"):  # a class, function or method
            _check_name(value)
        elif isinstance(value, Text) and value.get_usetex():
            raise NotPortableError("it has text for LaTeX")
        elif isinstance(value, Artist):
            return _without_windows(value.__reduce_ex__(PROTOCOL))
        return NotImplemented


def _without_windows(reduced: Any) -> Any:  # noqa: ANN401 - the result of an artist's `__reduce_ex__`
    """An artist's reduce value without NOT_SENT."""
    if isinstance(reduced, str) or len(reduced) < 3 or not isinstance(reduced[2], dict):  # noqa: PLR2004 - the state
        return reduced
    function, arguments, state, *items = reduced
    return function, arguments, {key: part for key, part in state.items() if key not in NOT_SENT}, *items


def _check_name(value: Any) -> None:  # noqa: ANN401 - a class, function or method
    module = value.__module__ or "builtins"
    library = module.partition(".")[0]
    if library in sys.stdlib_module_names:
        return
    if library not in LIBRARIES:
        raise NotPortableError(f"it uses {module}.{value.__qualname__}, which only your program may draw")
    problem = _library_problem(library)
    if problem:
        raise NotPortableError(problem)


@cache
def interpreter_problem() -> str | None:
    """Why another process of this interpreter could not draw a figure; None if it could."""
    if not sys.executable or not os.path.isfile(sys.executable):
        return "this process has no Python interpreter of its own"
    if "PYTHONHOME" in os.environ:
        return "PYTHONHOME is set, which the agent does not pass on"
    return None


@cache
def _library_problem(library: str) -> str | None:
    """Why another process of this interpreter would not find a library; None if it would."""
    origin = getattr(sys.modules.get(library), "__file__", None)
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE and "PYTHONUSERBASE" not in os.environ:
        installed.append(site.getusersitepackages())
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in installed if folder)
    if origin and not os.path.realpath(origin).startswith(folders):
        return f"{library} is not installed in {sys.prefix} but comes from {os.path.dirname(origin)}"
    return None
