"""The walk over a project's folders.

Regardless of the rules, the walk leaves out data roots (configured ones, and folders that look like one),
version control folders, virtual environments, caches, output folders of other loggers (`wandb`, `runs`, …
without a Python file), files to which this process's output is redirected, and everything that is not a
regular file. Links to folders are not followed unless BACKUP_CONFIG names them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.ignore_rules import IgnoreRules
from rla_client.code.secret_files import identity_of, is_secret, is_secret_name, is_secret_path
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator


MAX_SEEN = 200_000  # entries, including ignored ones; a data set beside the code ends the walk
NEVER_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox",
    ".ipynb_checkpoints", "node_modules", ".venv",
})  # fmt: skip
OUTPUT_FOLDERS = frozenset(
    {"wandb", "runs", "mlruns", "outputs", "lightning_logs", "swanlog"}
)  # of other loggers
VENV_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})
DATA_ROOT_MARKS = frozenset({"log", "archive_tester"})  # kinds that only a data root has side by side
DATABASE_FOLDERS = frozenset({*DEFAULT_LOG_TYPES, ARCHIVED_TABLE, ".rla"})  # the last: the trash


def _own_outputs() -> set[tuple[int, int]]:
    """The files that this process's stdout and stderr are redirected to."""
    found = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                found.add((status.st_dev, status.st_ino))
    return found


class ProjectWalk:
    """Walks trees in a fixed order, without the entries that are always left out."""

    def __init__(self, plan: BackupPlan, root: Path, rules: list[IgnoreRules], report: BackupReport) -> None:
        self.withheld: list[str] = []  # files and folders that may hold secrets
        self._root = str(root)
        self._rules = rules
        self._data_roots = {identity_of(path) for path in plan.data_roots} - {None}
        self._report = report
        self._seen = 0
        self._visited: set[tuple[int, int]] = set()
        self._own_outputs = _own_outputs()

    def below(self, top: Path) -> Iterator[str]:
        """Files at or below `top`; if it does not exist, the report notes it."""
        try:
            found = os.stat(top)
        except OSError:
            self._report.notes.append(f"{top} is not there")
            return
        if str(top) != self._root and self.withhold(str(top)):
            return
        if stat.S_ISREG(found.st_mode):
            yield str(top)
        elif stat.S_ISDIR(found.st_mode):
            yield from self._folder(str(top), (found.st_dev, found.st_ino))

    def _folder(self, top: str, identity: tuple[int, int]) -> Iterator[str]:
        pending = [(top, identity)]
        while pending:
            folder, identity = pending.pop()
            if identity in self._visited or (identity in self._data_roots and folder != top):
                continue
            self._visited.add(identity)
            entries = self._entries(folder)
            if entries is None:
                return
            names = {entry.name for entry in entries}
            if names & VENV_MARKS or (
                folder != top and (names >= DATA_ROOT_MARKS or _is_output(folder, names))
            ):
                continue
            # A project may be its own data root; then the folders of the data kinds are not code.
            never = NEVER_FOLDERS | DATABASE_FOLDERS if identity in self._data_roots else NEVER_FOLDERS
            here, below = os.path.basename(folder), list[tuple[str, tuple[int, int]]]()
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in never and not self.ignored(entry.path, folder=True):
                        if is_secret_name(entry.name):
                            self.withheld.append(entry.path)
                        else:
                            below.append((entry.path, _entry_identity(entry)))
                elif (
                    _is_file(entry)
                    and not (self._own_outputs and _entry_identity(entry) in self._own_outputs)
                    and not self.ignored(entry.path, folder=False)
                    and not (
                        (entry.is_symlink() or is_secret_path(f"{here}/{entry.name}"))
                        and self.withhold(entry.path)
                    )
                ):
                    yield entry.path
            pending.extend(reversed(below))

    def withhold(self, path: str) -> bool:
        """Whether a file or named folder may hold secrets; then it is added to `withheld`."""
        secret = is_secret(path, self._root)
        if secret:
            self.withheld.append(path)
        return secret

    def _entries(self, folder: str) -> list[os.DirEntry[str]] | None:
        """The sorted entries; empty for an unreadable folder, None if the walk exceeds MAX_SEEN."""
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    self._seen += 1
                    if self._seen > MAX_SEEN:
                        self._report.notes.append(f"more than {MAX_SEEN} files in all; the rest is left out")
                        return None
                    entries.append(entry)
        except OSError as error:
            self._report.leave_out(folder, 0, error.strerror or "unreadable")
        return sorted(entries, key=lambda entry: entry.name)

    def ignored(self, path: str, *, folder: bool) -> bool:
        """Whether a rule ignores the absolute `path`, or a folder above it."""
        return any(rules.ignores(path, folder=folder) for rules in self._rules)


def _is_output(folder: str, names: set[str]) -> bool:
    """Whether a folder is the output of another logger, and not code of the same name."""
    return os.path.basename(folder) in OUTPUT_FOLDERS and not any(name.endswith(".py") for name in names)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a circular link, or a target that this user may not read
        return False


def _entry_identity(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return -1, entry.inode()
    return found.st_dev, found.st_ino
