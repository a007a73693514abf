"""The plan of a code backup, with its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MAX_LISTED = 1000  # names of left-out files that a report keeps


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """The files to back up.

    Attributes:
        code_root: folder that relative names start from.
        lib_mode: True stores the content of `lib_dir`, False `code_dirs`.
        code_dirs: folders and files, relative to `code_root` or absolute (source mode).
        lib_dir: the built package (lib mode).
        run_files: scripts that are stored at the top, under their own name.
        ignore_file: file with gitignore rules; a missing one is reported, not fatal.
        ignore_rules: further gitignore rules, or names of files with such rules.
        data_roots: databases, which are never copied.
        secrets: files with passwords or keys, which are never copied, and reported.
        sources_only: take only files that look like source code or that git tracks.
    """

    code_root: Path
    lib_mode: bool = False
    code_dirs: tuple[str, ...] = (".",)
    lib_dir: str = ""
    run_files: tuple[str, ...] = ()
    ignore_file: Path | None = None
    ignore_rules: tuple[str, ...] = ()
    data_roots: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()
    sources_only: bool = False


@dataclass(slots=True)
class BackupReport:
    """The result of a backup.

    Attributes:
        files: number of captured files.
        total_bytes: their size.
        left_out: (name, bytes, reason) of files over a limit or unreadable, the first MAX_LISTED.
        left_out_count: number of all files that were left out.
        notes: other problems, such as missing folders, one line each.
        took_s: seconds that the caller waited.
    """

    files: int = 0
    total_bytes: int = 0
    left_out: list[tuple[str, int, str]] = field(default_factory=list)
    left_out_count: int = 0
    notes: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def leave_out(self, name: str, size_bytes: int, why: str) -> None:
        """Count a file that is not copied."""
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append((name, size_bytes, why))

    def warning(self) -> str | None:
        """A text about everything that was left out; None if nothing was."""
        lines = list(self.notes)
        if self.left_out_count:
            shown = ", ".join(f"{name} ({why})" for name, _, why in self.left_out[:5])
            more = f" and {self.left_out_count - 5} more" if self.left_out_count > 5 else ""  # noqa: PLR2004 - as above
            lines.append(f"{self.left_out_count} file(s) were not backed up: {shown}{more}")
        return "code backup: " + "; ".join(lines) if lines else None
