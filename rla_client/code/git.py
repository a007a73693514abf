"""Read-only queries of git.

`ask_git` runs no hooks or file monitors of a repository. Content filters (`filter.*.clean`, used by Git LFS)
do run when git compares a file: without them it would report clean files as changed.

A file that git has committed unchanged is not a secret, as everybody can read it in the repository. Links do
not count: git commits the target's name, not its content.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

MAX_ASKED = 500  # names in one git command
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
GIT_LIMIT_S = 2.0  # time limit for a repository on a slow network; then no file counts as tracked


def committed_by_git(paths: Iterable[str], root: str) -> list[str]:
    """The files, among these and below these folders, that git has committed unchanged; absolute paths.

    Changed or only staged files and links are not among them.
    """
    asked = list(paths)[:MAX_ASKED]
    tracked = tracked_by_git(asked, root)
    if not tracked:
        return []
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    changed = ask_git(root, "--literal-pathspecs", *status, "--", *asked)
    top = ask_git(root, "rev-parse", "--show-toplevel")
    if changed is None or top is None:
        return []
    base = os.path.realpath(os.fsdecode(top).rstrip("\n"))
    dirty = {os.path.join(base, os.fsdecode(entry[3:])) for entry in changed.split(b"\0") if entry}
    return [path for path in tracked if not os.path.islink(path) and not _is_below(path, dirty)]


def tracked_by_git(paths: Iterable[str], root: str) -> list[str] | None:
    """The files in git's index, among the first MAX_ASKED of these files and folders; absolute paths.

    None if there is a repository but git does not answer.
    """
    asked = list(paths)[:MAX_ASKED]
    if not asked or not _in_repository(root):
        return []
    listed = ask_git(root, "--literal-pathspecs", "ls-files", "-z", "--recurse-submodules", "--", *asked)
    if listed is None:
        return None
    return [os.path.normpath(os.path.join(root, os.fsdecode(name))) for name in listed.split(b"\0") if name]


def ask_git(root: str | os.PathLike[str], *words: str, limit_s: float = GIT_LIMIT_S) -> bytes | None:
    """The output of a git command in `root`; None if it fails or takes longer than `limit_s`."""
    try:
        done = subprocess.run(
            [*GIT, *words],
            cwd=root,
            env=os.environ | GIT_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _is_below(path: str, places: set[str]) -> bool:
    """Whether one of the places is this path or a folder above it (a submodule)."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return any(real == place or real.startswith(f"{place.rstrip(os.sep)}{os.sep}") for place in places)


def _in_repository(folder: str) -> bool:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
