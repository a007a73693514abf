"""Names that are safe as components of a path. No I/O."""

from __future__ import annotations

import re
import sys

from rla_client.contract.errors import ArgumentError, UnsafeNameError

MAX_COMPONENT_BYTES = 255
_ENCODING = sys.getfilesystemencoding()  # all but UTF-8 has to be asked for
FILE_NAMES = f"this Python writes file names as {_ENCODING}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_table_name(name: object) -> str:
    """Return a task table name that may become folders (`a` or `a/b`).

    Raises:
        ArgumentError: it is not text.
        UnsafeNameError: it is empty, absolute, leaves the database, or holds control characters.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"task_table_name must be text, got {type(name).__name__}")
    check_relative(name, what="task_table_name")
    return name


def check_relative(path: str, *, what: str = "name") -> tuple[str, ...]:
    """Split a relative path into components that are each safe below some folder.

    Raises:
        UnsafeNameError: a component is empty, `.`, `..`, too long, or not storable as UTF-8;
            or the path is absolute or holds control characters.
    """
    parts = tuple(path.split("/"))
    for part in parts:
        problem = component_problem(part)
        if problem:
            raise UnsafeNameError(f"{what} {path!r} cannot be used: {problem}")
    return parts


def component_problem(part: str) -> str | None:
    """Say why `part` cannot be one path component, or None when it can."""
    if part == "":
        return "it is empty, absolute, or has two slashes in a row"
    if part in {".", ".."}:
        return f"{part!r} would leave its folder"
    if "/" in part or _CONTROL.search(part):
        return "it holds a slash or a control character"
    try:
        raw = part.encode()
        part.encode(_ENCODING)
    except UnicodeEncodeError as error:
        utf8 = error.encoding == "utf-8"
        return "it is not valid Unicode text" if utf8 else f"{FILE_NAMES}; start it with PYTHONUTF8=1"
    return f"it is longer than {MAX_COMPONENT_BYTES} bytes" if len(raw) > MAX_COMPONENT_BYTES else None
