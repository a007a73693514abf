"""The diff of a project's uncommitted changes.

git makes the diff, within GIT_LIMIT_S and DIFF_MAX_BYTES. Files whose names say that they hold secrets are
left out, also where they were renamed or copied; `left_out` names them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.code.diff_secrets import hide_in_diff
from rla_client.code.git import GIT, GIT_ENVIRONMENT
from rla_client.code.secret_files import is_secret_path

if TYPE_CHECKING:
    from collections.abc import Iterator


DIFF_MAX_BYTES = 1_000_000
_SECTION = "diff --git "  # begins the section of a file; no line of content begins with it
_NAMED = ("--- a/", "+++ b/", '--- "a/', '+++ "b/', "rename from ", "rename to ", "copy from ", "copy to ")


def git_diff(folder: Path, deadline: float) -> dict[str, Any]:
    """The diff to the last commit: {"state": "complete" | "cut" | …, "text": …, "left_out": [name]}.

    git runs without the repository's hooks, external diffs, text filters and file monitor.

    Args:
        folder: inside the repository.
        deadline: time of `time.monotonic` at which git is killed.
    """
    command = [
        *GIT, "-c", "core.quotePath=false", "diff", "--no-ext-diff", "--no-textconv", "--no-color",
        "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "-M20%", "-C20%", "HEAD", "--", ":/",
    ]  # fmt: skip
    environment = os.environ | GIT_ENVIRONMENT | {"LC_ALL": "C"}
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {"state": f"git could not be started: {error.strerror or error}"}
    killer = threading.Timer(max(0.0, deadline - time.monotonic()), _kill, (child,))
    killer.daemon = True
    killer.start()
    assert child.stdout is not None
    with child.stdout:
        text = child.stdout.read(DIFF_MAX_BYTES + 1)
        whole = len(text) <= DIFF_MAX_BYTES
    if not whole:
        _kill(child)
    status = child.wait()
    killer.cancel()
    state = "complete" if whole and status == 0 else "cut" if not whole else f"git ended with status {status}"
    if status == -signal.SIGKILL and whole:
        state = "given up: git took too long"
    shown = text[:DIFF_MAX_BYTES].decode("utf-8", "replace")
    kept, left_out = _without_secret_files(shown)
    found: dict[str, Any] = {"state": state, "text": hide_in_diff(kept)}
    return found | ({"left_out": left_out} if left_out else {})


def _without_secret_files(diff: str) -> tuple[str, list[str]]:
    """A diff without the files that have a secret name before or after, and these names."""
    parts = [(names, part, any(map(is_secret_path, names))) for names, part in _sections(diff)]
    left_out = sorted({name for names, _, secret in parts if secret for name in names})
    return "".join(part for _, part, secret in parts if not secret), left_out


def _sections(diff: str) -> Iterator[tuple[set[str], str]]:
    """The sections of a diff: for each file, its old and new names, and the text."""
    lines: list[str] = []
    for line in [*diff.splitlines(keepends=True), _SECTION]:
        if line.startswith(_SECTION) and lines:
            yield _names(lines), "".join(lines)
            lines = []
        lines.append(line)


def _names(section: list[str]) -> set[str]:
    head = section[0].removeprefix(_SECTION).rstrip("\n")
    half, other = head[: len(head) // 2], head[len(head) // 2 + 1 :]
    found = (
        {half} if half.replace("a/", "b/", 1) == other else set()
    )  # otherwise, later lines have both names
    for line in section[1:]:
        if line.startswith("@@"):
            break
        if line.startswith(_NAMED):
            found.add(line.split(" ", 1 if line[0] in "-+" else 2)[-1].rstrip("\t\n"))
    names = {_unquoted(name) for name in found}
    return {name.partition("/")[2] if name.startswith(("a/", "b/")) else name for name in names}


def _unquoted(name: str) -> str:
    """A file's name without git's quotes, which it adds to names with special characters."""
    if not name.startswith('"'):
        return name
    raw = name[1:-1].encode().decode("unicode_escape", "replace")
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
