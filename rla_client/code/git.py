"""Asking git: nothing is changed, and no hook or file monitor that a repository's settings name is run.

Content filters (`filter.*.clean`, as Git LFS has them) do run where git compares a file: without them it
would report clean files as changed.
"""

from __future__ import annotations

import os
import subprocess

GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
GIT_LIMIT_S = 2.0  # a repository on a slow network; then nothing counts as tracked


def ask_git(root: str | os.PathLike[str], *words: str, limit_s: float = GIT_LIMIT_S) -> bytes | None:
    """What a git command in `root` prints; None when it fails or takes longer than `limit_s`."""
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
