"""Reader of the ends of a run's text logs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.layout import LOG
from rla_client.contract.text.spelling import unknown
from rla_client.database.run import Run
from rla_client.database.tree.run_names import shown_name

TextLog: TypeAlias = Literal["log", "progress", "warn", "backup", "console"]
LOG_FILES: dict[str, str] = {
    "log": "log.txt",
    "progress": "progress.csv",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}
MAX_END_BYTES = 32 << 20  # 20 rows of 65,536 numbers


def last_lines(path: Path, lines: int, max_bytes: int = MAX_END_BYTES) -> tuple[list[bytes], int]:
    """The last lines of a file, within `max_bytes`, and the offset after them.

    Raises:
        OSError: the file cannot be read.
    """
    with open_plain(path) as file:
        size = written_bytes(file)
        block, start = b"", size
        while start > 0 and block.count(b"\n") <= lines and size - start < max_bytes:
            step = min(start, 1 << 16)
            start -= step
            file.seek(start)
            block = file.read(step) + block
    return (block.splitlines()[-lines:] if lines > 0 else []), size


def log_path(run: Run, what: str) -> Path:
    """The path of one of a run's text files.

    Args:
        run: the run.
        what: a `TextLog`.

    Raises:
        UnknownNameError: there is no such kind of file.
        DatabaseError: the run has no such file.
    """
    if what not in LOG_FILES:
        raise unknown(what, LOG_FILES, f"there is no file {what!r}")
    path = Path(run.folder(LOG), LOG_FILES[what])
    if what == "console":  # a continued run has several; the newest is wanted
        path = max(path.parent.glob("console*.txt"), key=lambda found: found.stat().st_mtime, default=path)
    if not path.exists():
        there = [name for name, file in LOG_FILES.items() if Path(run.folder(LOG), file).exists()]
        name = shown_name(run.table, run.index)
        message = f"{name} has no {path.name}; it has: {', '.join(there) or 'no log'}"
        raise DatabaseError(message)
    return path
