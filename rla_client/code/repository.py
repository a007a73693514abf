"""Repository of a launcher.

The code is what git tracks (including submodules) and untracked files that it does not ignore. Untracked
files are not code if they lie in data roots, `data/local`, experiments, virtual environments or caches, or if
`rla plot` or `rla export` wrote them: they are not archived and do not make a commit `-dirty`. An untracked
launcher that lies among data, such as the code of a rerun, does not belong to the repository. In a home
folder that is a repository, untracked files are code only if this program runs them. A repository that git
did not list is never archived partly: that is an error. Git is called with a deadline; a failure is not
fatal, and unknown values are None.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rla_client.code.find_code import find_script, imported_below, is_broad
from rla_client.code.git import ask_git
from rla_client.code.walk import DATA_ROOT_MARKS, DATABASE_FOLDERS, NEVER_FOLDERS, VENV_MARKS
from rla_client.code.written_files import is_written, read_written
from rla_client.config.project import DATA_FOLDER as DATABASE_FOLDER
from rla_client.config.project import LAUNCHER_FOLDER

GIT_TIMEOUT_S = 10.0  # a repository on a sleeping network disk must not delay the training
RECORD_MARKS = frozenset({"metadata.json", "variant.json"})  # of an experiment's folder


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository of a launcher.

    Attributes:
        root: its top folder.
        githash: the commit; None before the first.
        dirty: whether the code differs from the commit; None if unknown.
        tracked: names of the files that git tracks; None if unknown.
        untracked: names of untracked files that are code; None if unknown.
    """

    root: Path
    githash: str | None
    dirty: bool | None
    tracked: frozenset[str] | None = None
    untracked: frozenset[str] | None = None


def find_repository(folder: Path, outside: tuple[Path, ...]) -> Repository | None:
    """The git repository of the code in `folder`; files in the folders `outside` are not code."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    if not root:
        return None
    base = Path(root.decode().strip())
    commit = _git(base, "rev-parse", "--verify", "-q", "HEAD")
    left_out = [Path(os.path.realpath(path)) for path in outside]
    below = [os.path.relpath(path, base) for path in left_out if path.is_relative_to(base) and path != base]
    exclude = [":(top)", *(f":(exclude,top,literal){path}" for path in below)]
    changes = _git(base, "status", "--porcelain", "--untracked-files=no", "--", *exclude)
    tracked = _names(_git(base, "ls-files", "-z", "--cached", "--recurse-submodules"), below)
    below_base = os.path.relpath(folder, base)
    if _is_among_data(base, folder) and not any(name.startswith(f"{below_base}/") for name in tracked or ()):
        return None
    if is_broad(base):
        others: frozenset[str] | None = _running(base, folder) - (tracked or frozenset())
    else:
        listed = _git(base, "ls-files", "-z", "--others", "--exclude-standard", "--", *exclude)
        others = _names(listed, below)
    known: dict[str, bool] = {}
    untracked = None
    if others is not None:
        written = read_written((*outside, base / DATABASE_FOLDER))
        untracked = frozenset(
            name
            for name in others
            if not in_no_code(base, os.path.dirname(name), known)
            and not ((noted := written.get(str(base / name))) and is_written(str(base / name), noted))
        )
    dirty = True if changes or untracked else None if changes is None or untracked is None else False
    return Repository(base, commit.decode().strip() if commit else None, dirty, tracked, untracked)


def _running(base: Path, folder: Path) -> frozenset[str]:
    """Names of the script and of the modules that it imported from its folder and from `base`."""
    script = find_script()
    own = () if script is None else (str(script),)
    paths = map(os.path.realpath, (*own, *imported_below(folder), *imported_below(base)))
    return frozenset(os.path.relpath(path, base) for path in paths if Path(path).is_relative_to(base))


def lost_repository(folder: Path) -> Path | None:
    """A folder at or above `folder` that looks like a repository although git found none."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            return None if _is_among_data(above, folder) else above
    return None


def _git(folder: Path, *words: str) -> bytes | None:
    return ask_git(folder, *words, limit_s=GIT_TIMEOUT_S)


def _names(output: bytes | None, outside: list[str]) -> frozenset[str] | None:
    if output is None:
        return None
    names = (os.fsdecode(name) for name in output.split(b"\0") if name)
    folders = tuple(f"{folder}/" for folder in outside)
    return frozenset(name for name in names if not name.startswith(folders))


def _is_data_root(folder: Path) -> bool:
    return all((folder / mark).is_dir() for mark in DATA_ROOT_MARKS)


def _is_data(root: Path, folder: Path) -> bool:
    return (
        folder.parts[-len(LAUNCHER_FOLDER) :] == LAUNCHER_FOLDER
        or _is_data_root(folder)
        or (folder.parent == root and folder.name in DATABASE_FOLDERS and _is_data_root(root))
        or all((folder / mark).exists() for mark in RECORD_MARKS)
    )


def _is_among_data(root: Path, folder: Path) -> bool:
    """Whether a launcher lies among data; commands of a virtual environment do not."""
    above = (folder, *folder.parents) if folder != root and folder.is_relative_to(root) else ()
    return any(_is_data(root, one) for one in above if one != root and one.is_relative_to(root))


def in_no_code(root: Path, folder: str, known: dict[str, bool]) -> bool:
    """Whether a folder, relative to `root`, is or lies in a folder without code (see above)."""
    if folder in {"", "."}:
        return False
    if folder not in known:
        here = root / folder
        own = (
            here.name in NEVER_FOLDERS
            or any((here / mark).exists() for mark in VENV_MARKS)
            or _is_data(root, here)
        )
        known[folder] = own or in_no_code(root, os.path.dirname(folder), known)
    return known[folder]
