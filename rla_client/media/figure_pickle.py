"""Figures of matplotlib, pickled to be drawn elsewhere.

`dump_figure` costs the caller a few milliseconds; drawing would cost ten times that. A figure can travel
when the render process will read it: the same rules (figure_reader.py) are applied to each object while it
is pickled, and what it consists of is installed in the interpreter itself, not reached through PYTHONPATH
or the script's folder. Anything else raises NotPortableError, and the caller draws the figure himself.
"""

from __future__ import annotations

import copyreg
import enum
import gc
import io
import os
import pickle
import site
import sys
import sysconfig
import types
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from rla_client.contract.errors import RlaError
from rla_client.media.figure_reader import (
    CALL_NAMES,
    CLASS_NAMES,
    FUNCTION_NAMES,
    LATEX_FORMATS,
    NOT_SENT,
    RefusedError,
    bound_method,
    check_call,
    check_new,
    check_payload,
    check_state,
    is_style,
    numpy_function,
)

PROTOCOL = 5
MAX_FIGURE_BYTES = 256 << 20  # rla_agent.jobs.render_job takes no more


class NotPortableError(RlaError):
    """This figure cannot be drawn by another process. The text says why."""


def dump_figure(
    figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None = None, format_: str = "png"
) -> bytes:
    """Serialise a figure, its savefig options, and the styles and fonts in force.

    Args:
        figure: any matplotlib figure; its canvas and pyplot window are left out.
        options: keyword arguments of `savefig`; artists among them stay those of the figure. Others than
            SAVEFIG_OPTIONS are for the caller, so that a mistake is reported where it was made.
        decoration: arguments of `render.decorate`, for the render process to do.
        format_: what it will be drawn as.

    Raises:
        NotPortableError: it has to be drawn by the caller.
    """
    from matplotlib import font_manager  # noqa: PLC0415 - looks for all fonts

    latex = mpl.rcParams["text.usetex"] or mpl.rcParams["ps.usedistiller"] or format_ in LATEX_FORMATS
    problem = "LaTeX or ghostscript draws it" if latex else interpreter_problem()
    if problem:
        raise NotPortableError(problem)
    payload = {
        "figure": figure,
        "options": options,
        "rc": {key: value for key, value in dict.items(mpl.rcParams) if is_style(key, value)},
        "fonts": [entry.fname for entry in font_manager.fontManager.ttflist],
        "decoration": decoration,
    }
    try:
        check_payload(payload, format_)
    except RefusedError as error:
        raise NotPortableError(str(error)) from error
    data = _pickle(payload)
    if len(data) > MAX_FIGURE_BYTES:
        raise NotPortableError(f"it has {len(data) >> 20} MiB of data")
    return data


def _pickle(payload: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    collecting = gc.isenabled()
    gc.disable()  # a collection here would cost more than the pickling
    try:
        _FigurePickler(buffer, protocol=PROTOCOL).dump(payload)
    except NotPortableError:
        raise
    except RefusedError as error:
        raise NotPortableError(str(error)) from error
    except Exception as error:  # artists and formatters raise whatever they like
        raise NotPortableError(f"it cannot be pickled: {type(error).__name__}: {error}") from error
    finally:
        if collecting:
            gc.enable()
    return buffer.getvalue()


class _FigurePickler(pickle.Pickler):
    """Refuses at once what the render process would refuse later."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as in the base class
        kind = type(value)
        if isinstance(value, (type, types.FunctionType)) or (
            kind is types.BuiltinFunctionType and isinstance(value.__self__, (types.ModuleType, type(None)))
        ):
            _check_name(value)
            return NotImplemented
        if kind is types.MethodType or kind is types.BuiltinFunctionType:
            owner, name = value.__self__, value.__name__
            bound_method(owner, name)
            return bound_method, (owner, name)
        if kind.__module__.startswith("numpy") and callable(value):
            if numpy_function(value.__name__) is not value:
                raise RefusedError(f"it uses {value!r}")
            return numpy_function, (value.__name__,)
        if isinstance(value, enum.Enum):  # CPython 3.11.0 to 3.11.3 would name it by getattr
            return _checked(value, (kind, (value.value,)))
        reduce = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(PROTOCOL) if reduce is None else reduce(value)
        return _checked(value, reduced)


def _checked(value: object, reduced: Any) -> str | tuple[Any, ...]:  # noqa: ANN401
    """An object's reduce value, less what is not sent.

    Raises:
        RefusedError: the render process would not take it.
    """
    if isinstance(reduced, str):  # a function that C code made
        _check_name(value)
        return reduced
    function, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    if getattr(function, "__name__", "") == "__newobj__":
        check_new(arguments[0], arguments[1:])
    else:
        check_call(_public(function.__module__), function.__qualname__, arguments)
    if isinstance(state, dict):
        state = {key: entry for key, entry in state.items() if key not in NOT_SENT}
    if state is not None:
        check_state(value, state)
    return function, arguments, state, items, pairs


def _check_name(value: Any) -> None:  # noqa: ANN401 - a class or function
    name = _public(value.__module__ or "builtins"), value.__qualname__
    known = CLASS_NAMES if isinstance(value, type) else FUNCTION_NAMES
    if name not in known and name not in CALL_NAMES:
        raise RefusedError(f"it uses {'.'.join(name)}, which only your program may draw")


def _public(module: str) -> str:
    """Name by which a C implementation is pickled."""
    return {"_functools": "functools", "_collections": "collections"}.get(module, module)


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
