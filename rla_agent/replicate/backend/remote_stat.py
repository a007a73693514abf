"""State of a path on a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """State of one remote path.

    `mtime_s` is Unix seconds. `mode`: permission bits, setgid and the like included; None: unknown.
    `version`: identifies the version for `TargetSession.read_version`, where the target has versions.
    `synced`: it was just written, and would survive a power cut there.
    """

    size: int
    mtime_s: int
    kind: Kind = "file"
    mode: int | None = field(default=None, compare=False)
    version: object = field(default=None, compare=False, repr=False)
    synced: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Probe:
    """A file to check, with spans of bytes to read, as (offset, count)."""

    path: bytes
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StatWithParts:
    """Result of a probe; None: no such file. `parts`: the bytes of each span, fewer where the file ends."""

    state: RemoteStat | None
    parts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Twin:
    """A file on the target with the content `sha256`; `left`: its state when we left it."""

    path: bytes
    left: RemoteStat
    sha256: bytes


def same(found: RemoteStat | None, expect: RemoteStat | None) -> bool:
    """Whether a remote path is unchanged since we left it."""
    if found is None or expect is None:
        return found is expect
    return found.kind == "file" and (found.size, found.mtime_s) == (expect.size, expect.mtime_s)
