"""Origin of a call.

The program's own files are those outside of the standard library and of installed packages, and the files of
the installed package that was started (`python -m package`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import FrameType

_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_known: dict[str, bool] = {}


def is_own(file: str) -> bool:
    """Whether a file, named as in code objects, is one of the program's own."""
    found = _known.get(file)
    if found is None:
        found = _known[file] = _is_own(file)
    return found


def _is_own(file: str) -> bool:
    if file.startswith("<"):  # interactive input or `python -c`, but not importlib
        return not file.startswith("<frozen")
    path = os.path.abspath(file)
    package = _package_below_installed(path)
    if package is not None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        return main is not None and package == _package_below_installed(os.path.abspath(main))
    return not path.startswith(_STANDARD)


def _package_below_installed(path: str) -> str | None:
    for place in _INSTALLED:
        head, found, rest = path.rpartition(place)
        if found:
            return f"{head}{place}{rest.partition(os.sep)[0]}"
    return None


def caller(depth: int, *skipped: str) -> FrameType | None:
    """The calling frame, `depth` levels up, skipping files whose paths end with one of `skipped`."""
    frame: FrameType | None = sys._getframe(depth + 1)  # noqa: SLF001 - CPython's
    while frame is not None and frame.f_code.co_filename.endswith(skipped):
        frame = frame.f_back
    return frame


def called_by_program(depth: int, *skipped: str) -> bool:
    """Whether the calling frame, see `caller`, is in one of the program's own files."""
    frame = caller(depth + 1, *skipped)
    return frame is not None and is_own(frame.f_code.co_filename)
