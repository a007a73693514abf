"""Wrappers of a library's functions.

A wrapper replaces the original in the module or class that defines it and has its names, so that it is
pickled by reference and shows the original's signature. An error in a hook never fails the call.
"""

from __future__ import annotations

import sys

from . import state
from .state import CapturePart, thread

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_LAZY = sys.version_info >= (3, 14)  # annotations are evaluated lazily, and some cannot be evaluated
_DRESS = ("__module__", "__name__", "__qualname__", "__doc__", "__annotate__" if _LAZY else "__annotations__")
_ours: set[int] = set()  # ids of the wrappers, which live as long as their owners


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of a module or a method of a class by `make(original)`, once.

    Nothing happens if this version of the library does not have the name, or if the method is inherited.
    """
    original = vars(owner).get(name)
    kind = type(original) if isinstance(original, classmethod | staticmethod) else None
    function = original if kind is None else original.__func__
    if not callable(function) or id(function) in _ours:
        return
    wrapper = make(function)
    dress(wrapper, function)
    _ours.add(id(wrapper))
    setattr(owner, name, wrapper if kind is None else kind(wrapper))


def dress(wrapper: Any, original: Any) -> None:
    """Give a wrapper the original's names, documentation and signature."""
    for name in _DRESS:
        if hasattr(original, name):
            setattr(wrapper, name, getattr(original, name))
    if _LAZY and getattr(original, "__annotate__", original) is None:  # the annotations were set as a dict
        wrapper.__annotations__ = original.__annotations__
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__wrapped__ = original
    inspect = sys.modules.get("inspect")
    if inspect is not None:  # `getfullargspec` does not follow __wrapped__
        how = {"annotation_format": sys.modules["annotationlib"].Format.FORWARDREF} if _LAZY else {}
        try:
            wrapper.__signature__ = inspect.signature(original, **how)
        except (TypeError, ValueError):
            return


def guarded(part: CapturePart, see: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a hook; None if it raised an error, which is noted. Its own calls are not captured."""
    former, thread.inside = thread.inside, True
    try:
        return see(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - `failed` notes it
        part.failed(error)
        return None
    finally:
        thread.inside = former


def observed(
    part: CapturePart, see: Callable[..., object], look: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """A maker of wrappers that call `see(result, *args, **kwargs)` after the original.

    The original's own calls are not captured. With `look`, which is called before the original with the same
    arguments, `see` gets its result in place of the original's; it is not called if that is None.
    """

    def make(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            here = thread
            if here.inside or not part.on:
                return original(*args, **kwargs)
            seen = None if look is None else guarded(part, look, *args, **kwargs)
            here.inside = True
            try:
                result = original(*args, **kwargs)
                if look is None:
                    seen = result
                elif seen is None:
                    return result
                try:  # inlined `guarded`, whose call would double the cost of the wrapper
                    see(seen, *args, **kwargs)
                except Exception as error:  # noqa: BLE001 - `failed` notes it
                    part.failed(error)
            finally:
                here.inside = False
                here.event = None
            return result

        return wrapper

    return make


def followed(part: CapturePart, see: Callable[..., object]) -> Callable[[Any], Any]:
    """As `observed`, for an original that runs the program: its own calls are captured."""

    def make(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if part.on and not thread.inside:
                guarded(part, see, result, *args, **kwargs)
            return result

        return wrapper

    return make


def preceded(part: CapturePart, see: Callable[..., object]) -> Callable[[Any], Any]:
    """A maker of wrappers that call `see(*args, **kwargs)` before the original.

    The original runs the program: its own calls are captured.
    """

    def make(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if part.on and not thread.inside:
                guarded(part, see, *args, **kwargs)
            return original(*args, **kwargs)

        return wrapper

    return make


def from_adapted_library(frame: FrameType | None) -> bool:
    """Whether a call comes from a library with a hook of its own."""
    name = "" if frame is None else frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in state.adapted
