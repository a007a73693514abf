"""Current commit of a project's repository.

Commit and branch are read from the repository's files, without a process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and branch of the repository around `folder`; None without a repository."""
    for place in (folder, *folder.parents):
        marker = place / ".git"
        if not marker.exists():
            continue
        git_dir = marker
        if marker.is_file():  # a work tree or submodule: "gitdir: <path>"
            git_dir = place / _text(marker).partition("gitdir:")[2].strip()
        head = _text(git_dir / "HEAD")
        common = git_dir / (_text(git_dir / "commondir") or ".")
        branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
        commit = _resolve(head.removeprefix("ref: "), (git_dir, common)) if branch else head or None
        return {
            "root": str(place),
            "commit": commit,
            "branch": branch,
            "dirty": None,
            "diff": {"state": "pending"},
        }
    return None


def _resolve(ref: str, folders: tuple[Path, ...]) -> str | None:
    for folder in folders:
        commit = _text(folder / ref)
        if commit:
            return commit
        for line in _text(folder / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == ref:
                return commit
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
