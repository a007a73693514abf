"""Ignore rules of a project, in git's syntax.

Rules of a file are relative to the folder of the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.code.backup_plan import BackupPlan, BackupReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pathspec


def entry_path(root: Path, entry: str) -> Path:
    """The path that an entry of BACKUP_CONFIG names."""
    return Path(os.path.abspath(root / os.path.expanduser(entry)))


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """gitignore rules, with the folder to which anchored rules are relative."""

    anchor: str
    spec: pathspec.GitIgnoreSpec

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a rule ignores the absolute `path`."""
        if not path.startswith(self.anchor):
            return False
        relative = path[len(self.anchor) :]
        return self.spec.match_file(relative + "/" if folder else relative)

    def includes(self, path: str) -> bool:
        """Whether a `!rule` includes a file."""
        return (
            path.startswith(self.anchor) and self.spec.check_file(path[len(self.anchor) :]).include is False
        )


def read_rules(plan: BackupPlan, root: Path, report: BackupReport) -> list[IgnoreRules]:
    """The rules of a plan; missing files of rules are noted in the report."""
    sources: list[tuple[Path, list[str]]] = []
    if plan.ignore_file is not None:
        path = entry_path(root, str(plan.ignore_file))
        lines = _lines(path)
        if lines is None:
            report.notes.append(f"the ignore file {path} is not there")
        sources.append((path.parent, lines or []))
    patterns: list[str] = []
    for entry in plan.ignore_rules:
        if os.path.basename(entry).endswith("ignore"):
            path = entry_path(root, entry)
            sources.append((path.parent, _lines(path) or []))
        else:
            patterns.append(entry)
    sources.append((root, patterns))
    return [_rules(root, anchor, lines) for anchor, lines in sources if lines]


def ignored_names(root: Path, ignore_file: Path, folder: Path, names: Iterable[str]) -> list[str]:
    """Those of the `names` in `folder` that an ignore file excludes from a backup of the code at `root`.

    A missing ignore file excludes nothing; its relative path starts from `root`.
    """
    path = entry_path(root, str(ignore_file))
    lines = _lines(path)
    if not lines:
        return []
    rules, here = _rules(root, path.parent, lines), os.path.abspath(folder)

    def ignored(name: str) -> bool:
        one = os.path.join(here, name)
        return rules.ignores(one, folder=os.path.isdir(one))

    return [name for name in names if ignored(name)]


def _rules(root: Path, anchor: Path, lines: list[str]) -> IgnoreRules:
    import pathspec  # noqa: PLC0415 - 38 ms, only where there are rules

    above = root == anchor or anchor in root.parents
    start = os.path.join(anchor if above else root, "")
    return IgnoreRules(start, pathspec.GitIgnoreSpec.from_lines(lines))


def _lines(path: Path) -> list[str] | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
