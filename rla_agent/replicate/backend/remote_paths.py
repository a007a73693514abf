"""Paths on a target.

They are bytes, relative to the target's root, with `/` between components; `check_remote` refuses a path that
would leave the root, so no target ever sees `..`, an absolute path or a NUL.
"""

from __future__ import annotations

from typing import Final

from rla_agent.replicate.backend.errors import DeniedError

MAX_REMOTE_PATH_BYTES: Final = 4000  # PATH_MAX, less the root
TEMP_PREFIX: Final = b".rla-tmp-"


def check_remote(path: bytes) -> bytes:
    """Return `path` if it stays below the root.

    Raises:
        DeniedError: it is absolute, has an empty, `.` or `..` component or a NUL, or is too long.
    """
    if path == b"":
        return path
    parts = path.split(b"/")
    if any(part in {b"", b".", b".."} for part in parts) or b"\0" in path:
        raise DeniedError("name", path, "the name would leave the remote root", "rename the file")
    if len(path) > MAX_REMOTE_PATH_BYTES or any(len(part) > 255 for part in parts):  # noqa: PLR2004 - NAME_MAX
        raise DeniedError("name", path, "the name is too long", "rename the file")
    return path


def parent(path: bytes) -> bytes:
    """Folder of a relative path; empty for the root."""
    return path.rpartition(b"/")[0]


def parents(path: bytes) -> list[bytes]:
    """`a/b/c` → [`a`, `a/b`, `a/b/c`]."""
    parts = path.split(b"/") if path else []
    return [b"/".join(parts[: count + 1]) for count in range(len(parts))]
