"""Unified diff of two runs' code.

Text files are compared by lines. Of tables and drawings (`NO_LINES`), binary files and files with very
long lines the diff only says that they differ, so that a plot in the project's folder does not hide a
change of the program. Code is a folder of files, or a launcher's archive in it, or both. Files are
compared with files; if a run has none, archives are compared with archives, because files and archives
begin at different folders.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import BinaryIO

from rla_client.code.launch_archive import MANIFEST_NAME
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.layout import HYPARAM_FILE_NAME
from rla_client.database.tree.items import files_below

MAX_CODE_BYTES = 2 << 20  # of a larger file the diff only says that it differs
MAX_DIFF_CHARS = 2 << 20  # of a bounded diff; more than a person reads
MAX_LINE = 5000  # characters; longer lines are data: minified code, or pictures inside a notebook
NO_LINES = frozenset(
    {".csv", ".tsv", ".jsonl", ".svg", ".pdf", ".ps", ".eps", ".log"}
)  # files of results and data
_BINARY = re.compile(
    r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]"
)  # without form feed and escape, which occur in sources
LAUNCH_FILES = frozenset({"launch_archive.tar.xz", "launch_archive.tar", MANIFEST_NAME})
PARAMETER_FILES = frozenset(f"{HYPARAM_FILE_NAME}.{suffix}" for suffix in ("json", "yaml"))


def code_differences(first: str, second: str, *, bounded: bool = False) -> tuple[str, list[str]]:
    """Unified diff of the code of two runs, and the folders without comparable code; then the diff is empty.

    Args:
        first: code folder of a run.
        second: code folder of the other run.
        bounded: see `code_diff`; archives are not unpacked either.

    Raises:
        LaunchError: an archive is damaged.
    """
    folders = (first, second)
    lacking = [folder for folder in folders if not has_code(folder)]
    if not lacking:
        return code_diff(*folders, bounded=bounded), []
    if bounded or not all(map(has_archive, folders)):
        return "", lacking
    from rla_client.code.launch_archive import restore

    with tempfile.TemporaryDirectory(prefix="rla-diff-") as temporary:
        trees = [Path(temporary, name) for name in ("first", "second")]
        for folder, tree in zip(folders, trees, strict=True):
            restore(Path(folder), tree)
        return code_diff(*map(str, trees)), []


def code_diff(first: str, second: str, *, bounded: bool = False) -> str:
    """Unified diff of two code folders; empty if they are equal, or if one has no code (see `has_code`).

    Of files without lines to compare (see above), or larger than `MAX_CODE_BYTES`, the diff only says that
    they differ. Parameter files and a launcher's archive beside the code are not compared.

    Args:
        first: code folder of a run.
        second: code folder of the other run.
        bounded: follow no links, compare sizes and beginnings of large files, stop after `MAX_DIFF_CHARS`.
    """
    left, right = _code_files(first), _code_files(second)
    if not left or not right:
        return ""
    pieces: list[str] = []
    characters = 0
    for name in sorted(left.keys() | right.keys()):
        if bounded and characters > MAX_DIFF_CHARS:
            pieces.append("(more files differ, or were not compared)\n")
            break
        old, new = (_content(files.get(name), bounded=bounded) for files in (left, right))
        if old == new:
            continue
        texts = [_lines(name, content) for content in (old, new)]
        if texts[0] is None or texts[1] is None:
            pieces.append(f"files differ: {name}\n")
            characters += len(name)
            continue
        names = (
            f"a/{name}" if old is not None else "/dev/null",
            f"b/{name}" if new is not None else "/dev/null",
        )
        lines = list(difflib.unified_diff(texts[0], texts[1], *names))
        lines = lines or [f"files differ: {name}\n"]  # an empty file, or the end of the last line
        characters += sum(map(len, lines))
        pieces += lines
    return "".join(pieces)


def has_code(folder: str) -> bool:
    """Whether a code folder holds files of code."""
    return bool(_code_files(folder))


def has_archive(folder: str) -> bool:
    """Whether a code folder holds a launcher's archive."""
    return os.path.exists(f"{folder}/{MANIFEST_NAME}")


def _code_files(folder: str) -> dict[str, str]:
    found = {os.path.relpath(path, folder): path for path in files_below(folder)}
    return {name: path for name, path in found.items() if name not in PARAMETER_FILES | LAUNCH_FILES}


def _content(path: str | None, *, bounded: bool) -> bytes | None:
    if path is None:
        return None
    try:
        with open_plain(path, links=not bounded) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= MAX_CODE_BYTES:
                return file.read(MAX_CODE_BYTES)
            size_mark = b"\0%d " % size  # not text, so it is only compared
            return size_mark + (file.read(MAX_CODE_BYTES) if bounded else _digest(file))
    except (OSError, BrokenFileError):
        return b""


def _digest(file: BinaryIO) -> bytes:
    digest, left = hashlib.sha256(), written_bytes(file)
    while left > 0 and (chunk := file.read(min(left, MAX_CODE_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.digest()


def _lines(name: str, content: bytes | None) -> list[str] | None:
    """Lines of a file, each with its line end; None if the file is not compared by lines."""
    if content is None:
        return []
    if len(content) > MAX_CODE_BYTES or os.path.splitext(name)[1].lower() in NO_LINES:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    if _BINARY.search(text) or any(len(line) > MAX_LINE for line in lines):
        return None
    return [f"{line}\n" for line in lines]
