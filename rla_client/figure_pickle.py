"""A matplotlib figure as bytes that the render process can draw without the caller's program.

Pickling costs the caller a few milliseconds, drawing would cost ten times that. A figure can
travel when all that its pickle names comes from libraries that draw (`render.is_loadable`) and
these are installed in the interpreter itself, not reached through PYTHONPATH or the script's
folder. Anything else raises NotPortableError, and the caller draws the figure himself.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import site
import sys
import sysconfig
import types
from functools import cache
from typing import TYPE_CHECKING, Any

from rla_client.errors import RlaError
from rla_client.render import is_loadable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_FIGURE_BYTES = 256 << 20  # rla_agent.sinks.figure takes no more
# What Figure.savefig and its formats take; with another option the caller draws, so that the
# mistake is reported where it was made.
SAVEFIG_OPTIONS = frozenset({
    "backend", "bbox_extra_artists", "bbox_inches", "dpi", "edgecolor", "facecolor", "metadata",
    "orientation", "pad_inches", "papertype", "pil_kwargs", "transparent",
})  # fmt: skip


class NotPortableError(RlaError):
    """This figure cannot be drawn by another process. The text says why."""


def dump_figure(figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None = None) -> bytes:
    """Serialise a figure, its savefig options, and the styles and fonts in force.

    Args:
        figure: any matplotlib figure; its canvas and pyplot window are left out.
        options: keyword arguments of `savefig`; artists among them stay those of the figure.
        decoration: arguments of `render.decorate`, for the render process to do.

    Raises:
        NotPortableError: it has to be drawn by the caller.
    """
    import matplotlib as mpl  # noqa: PLC0415 - only where figures are made
    from matplotlib import font_manager  # noqa: PLC0415

    unknown = options.keys() - SAVEFIG_OPTIONS
    if unknown:
        raise NotPortableError(f"savefig options {sorted(unknown)} are for the caller")
    problem = interpreter_problem()
    if problem:
        raise NotPortableError(problem)
    styles = {key: value for key, value in dict.items(mpl.rcParams) if "backend" not in key}
    payload = {
        "figure": figure,
        "options": options,
        "rc": styles,
        "fonts": [entry.fname for entry in font_manager.fontManager.ttflist],
        "decoration": decoration,
    }
    data = _pickle(payload)
    if len(data) > MAX_FIGURE_BYTES:
        raise NotPortableError(f"it has {len(data) >> 20} MiB of data")
    return data


def _pickle(payload: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    collecting = gc.isenabled()
    gc.disable()  # a collection here would cost more than the pickling
    try:
        _FigurePickler(buffer, protocol=5).dump(payload)
    except NotPortableError:
        raise
    except Exception as error:  # artists and formatters raise whatever they like
        raise NotPortableError(f"it cannot be pickled: {type(error).__name__}: {error}") from error
    finally:
        if collecting:
            gc.enable()
    return buffer.getvalue()


class _FigurePickler(pickle.Pickler):
    """Refuses at once what the render process would refuse later."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as in the base class
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            module = getattr(value, "__module__", None) or "builtins"
            if isinstance(getattr(value, "__self__", None), types.ModuleType) or not hasattr(
                value, "__self__"
            ):
                name = value.__qualname__
                if "<" in name or not is_loadable(_public(module), name):
                    raise NotPortableError(f"it uses {module}.{name}, which only your program has")
        elif "_restore_to_pylab" in getattr(value, "__dict__", ()) or _is_figure(value):
            return _without_window(value)
        return NotImplemented


def _public(module: str) -> str:
    """Name by which a C implementation is pickled."""
    return {"_functools": "functools", "_collections": "collections", "_operator": "operator"}.get(
        module, module
    )


def _is_figure(value: object) -> bool:
    figures = sys.modules.get("matplotlib.figure")
    return figures is not None and isinstance(value, figures.Figure)


def _without_window(figure: Any) -> Any:  # noqa: ANN401 - a reduce value
    """The figure's reduce value, less the order to open a pyplot window when it is loaded."""
    reduced = list(figure.__reduce_ex__(4))
    state = reduced[2]
    if isinstance(state, dict):
        reduced[2] = {key: value for key, value in state.items() if key != "_restore_to_pylab"}
    return tuple(reduced)


@cache
def interpreter_problem() -> str | None:
    """Why this interpreter could not draw the figure once more; None when it could."""
    if not sys.executable or not os.path.isfile(sys.executable):
        return "this process has no Python interpreter of its own"
    if "PYTHONHOME" in os.environ:
        return "PYTHONHOME is set, which the agent does not pass on"
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE and "PYTHONUSERBASE" not in os.environ:
        installed.append(site.getusersitepackages())
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in installed if folder)
    for library in ("matplotlib", "numpy", "PIL"):
        module = sys.modules.get(library)
        origin = getattr(module, "__file__", None)
        if origin and not os.path.realpath(origin).startswith(folders):
            return f"{library} is not installed in {sys.prefix} but comes from {os.path.dirname(origin)}"
    return None
