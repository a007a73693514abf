"""Wrappers of a library's functions.

A wrapper stands in the module or class that defines the original, under its names, so that it is pickled
by reference and shows the original's signature. The original runs first; ours cannot fail the call.
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

_LAZY = sys.version_info >= (3, 14)  # annotations are evaluated when asked for; some name what is not there
_DRESS = ("__module__", "__name__", "__qualname__", "__doc__", "__annotate__" if _LAZY else "__annotations__")
_ours: set[int] = set()  # identities of wrappers, which live as long as their owners


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of a module or a method of a class by what `make` makes of it, once.

    A name that the library (of this version) does not have is left alone, as is a method that is inherited.
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
    if _LAZY and getattr(original, "__annotate__", original) is None:  # they were given as a dict
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
    """The result of a call of ours, which is no fault of the program: None where it raised.

    What the call itself calls is not captured.
    """
    former, thread.inside = thread.inside, True
    try:
        return see(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is noted there
        part.failed(error)
        return None
    finally:
        thread.inside = former


def observed(
    part: CapturePart, see: Callable[..., object], look: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """What makes a wrapper that calls `see(result, *args, **kwargs)` after the original.

    The original is a captured call: what it calls in turn is not seen. With `look`, called before it with the
    same arguments, `see` gets what that gave in the place of the result; after None it is not called.
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
                try:  # as `guarded`, which would take as long as all of the rest
                    see(seen, *args, **kwargs)
                except Exception as error:  # noqa: BLE001 - it is noted there
                    part.failed(error)
            finally:
                here.inside = False
                here.event = None
            return result

        return wrapper

    return make


def followed(part: CapturePart, see: Callable[..., object]) -> Callable[[Any], Any]:
    """As `observed`, but the program runs in the original: what that calls is seen."""

    def make(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if part.on and not thread.inside:
                guarded(part, see, result, *args, **kwargs)
            return result

        return wrapper

    return make


def preceded(part: CapturePart, see: Callable[..., object]) -> Callable[[Any], Any]:
    """What makes a wrapper that calls `see(*args, **kwargs)` before the original.

    The program runs in that: what it calls is seen.
    """

    def make(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if part.on and not thread.inside:
                guarded(part, see, *args, **kwargs)
            return original(*args, **kwargs)

        return wrapper

    return make


def from_adapted_library(frame: FrameType | None) -> bool:
    """Whether a call comes from a library whose own adapter is at work."""
    name = "" if frame is None else frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in state.adapted
