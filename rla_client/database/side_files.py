"""The files beside the rows of a run, and the named views of a database.

Of a run they are its text logs and event files, what it was resumed with, how it failed, its tags and note.
A resumed run keeps the hyper-parameters that it began with; each change is a file of its own
(`rla_client.run.archive`). The traceback of what ended a run is the last one of its warnings. Tags and
note are in `note.json` beside the log.

Views are what the page shows, as the query of its address. They lie in `<data_root>/.rla/views.json`:
`{"format": 1, "views": {name: query}}`. A view is a text to this module; whoever opens one checks it as
anything that stands in an address.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.files import held_folder, open_plain, read_small, write_atomic, written_bytes
from rla_client.contract.layout import LOG, OUTPUT_NAMES
from rla_client.contract.opening import RUN_FILE
from rla_client.contract.parsing import parse_json
from rla_client.contract.textformat import unknown
from rla_client.database.records import NOTE_FILE, Record, read_json, shown_name

if TYPE_CHECKING:
    from rla_client.database.runs import Run

LOG_FILES = {
    "log": "log.txt",
    "progress": "progress.csv",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}
MAX_END_BYTES = 32 << 20  # of the last lines: 20 rows of 65,536 numbers
FAILED = "failed"
MAX_TRACEBACK_LINES = 15  # the end says what and where; `rla tail --file warn` has all
END_BYTES = 80 << 10  # of the warnings: the longest traceback that is kept, and what came after
KEPT_LOGDIR_S = 30 * 86400.0  # TensorBoard rarely looks at a folder of `rla tb --print` that is older
MAX_TAG_CHARACTERS = 80
NOTE_FORMAT = 1
VIEWS_FILE = "views.json"
VIEWS_FORMAT = 1
MAX_VIEWS = 500
MAX_NAME = 100  # characters
MAX_QUERY = 50_000  # characters; 200 selected runs have some 20,000


def last_lines(path: Path, lines: int, max_bytes: int = MAX_END_BYTES) -> tuple[list[bytes], int]:
    """The last lines of a file, within `max_bytes`, and the offset after them.

    Raises:
        OSError: it cannot be read.
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
        run: whose.
        what: a key of `LOG_FILES`.

    Raises:
        UnknownNameError: there is no such kind of file. DatabaseError: the run has none.
    """
    if what not in LOG_FILES:
        raise unknown(what, LOG_FILES, f"there is no file {what!r}")
    path = Path(run.folder(LOG), LOG_FILES[what])
    if what == "console":  # of a run that went on, the newest
        path = max(path.parent.glob("console*.txt"), key=lambda found: found.stat().st_mtime, default=path)
    if not path.exists():
        there = [name for name, file in LOG_FILES.items() if Path(run.folder(LOG), file).exists()]
        name = shown_name(run.table, run.index)
        message = f"{name} has no {path.name}; it has: {', '.join(there) or 'no log'}"
        raise DatabaseError(message)
    return path


def resumed_with(log_folder: str) -> list[dict[str, Any]]:
    """What each `parameter.resumed-N.json` says, in order: `file`, `time_step`, `time`, `changed`."""
    from rla_client.run.archive import change_files

    found = []
    for path in change_files(Path(log_folder)):
        try:
            content = parse_json(read_small(path))
        except (OSError, ValueError):
            continue  # `rla fsck` is for broken files
        if isinstance(content, dict) and isinstance(content.get("changed"), dict):
            said = {name: content.get(name) for name in ("time_step", "time", "changed")}
            found.append({"file": path.name, **said})
    return found


def changes_text(resumes: list[dict[str, Any]]) -> dict[str, str]:
    """Lines of name and value for people: the name of a file, and `lr 0.1 → 0.2, …`."""
    from rla_client.database.text import plain

    lines = {}
    for one in resumes:
        changes = [
            f"{name} {' → '.join(str(plain(value)) for value in values)}"
            for name, values in one["changed"].items()
            if isinstance(values, list)
        ]
        step = one["time_step"]
        lines[one["file"]] = ("" if step is None else f"at {plain(step)}: ") + ", ".join(changes)
    return lines


def traceback_end(log_folder: str, state: str | None) -> str:
    """The last lines of the traceback that a failed run ended with; empty where there is none."""
    if state != FAILED:
        return ""
    from rla_client.run.run import TRACEBACK_HEAD

    try:
        reason = str((read_json(f"{log_folder}/{RUN_FILE}") or {}).get("reason") or "")
        with open_plain(f"{log_folder}/{OUTPUT_NAMES['warn']}") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
            text = file.read(END_BYTES).decode("utf-8", "replace")
    except (OSError, BrokenFileError):
        return ""
    place = text.rfind(TRACEBACK_HEAD)
    if place < 0 or not reason or reason.partition(":")[0] not in text[place:]:
        return ""  # one of something else, which the run went on after
    return "\n".join(text[place:].rstrip("\n").split("\n")[-MAX_TRACEBACK_LINES:])


def tensorboard_folders(data_root: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Name shown in TensorBoard → event folder, for the runs that have one."""
    found = {}
    for record in records:
        folder = data_root / LOG / record.table / record.index / "tb"
        if os.path.isdir(folder):  # not one that may not be read
            found[f"{record.table}/{record.index}"] = folder
    return found


def fresh_logdir(now: float) -> Path:
    """A new folder for `make_logdir` in the user's cache; those of `KEPT_LOGDIR_S` ago go.

    Raises:
        OSError: it cannot be made.
    """
    import platformdirs

    try:
        cache = Path(platformdirs.user_cache_dir("rla")) / "tb"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "this user has no home, and HOME is not set") from error
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in cache.iterdir():
        with suppress(OSError):
            if now - old.lstat().st_mtime > KEPT_LOGDIR_S:
                shutil.rmtree(old)  # links are removed, never followed
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)), dir=cache))


def make_logdir(folders: dict[str, Path], target: Path, *, copy: bool) -> None:
    """A folder that TensorBoard can be pointed to.

    Args:
        folders: from `tensorboard_folders`.
        target: made; must not exist or be empty.
        copy: copy the event files; else link them.

    Raises:
        DatabaseError: the target holds something.
    """
    if target.exists() and any(target.iterdir()):
        message = f"{target} is not empty; choose another folder"
        raise DatabaseError(message)
    for name, folder in folders.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copytree(folder, place)
        else:
            place.symlink_to(folder, target_is_directory=True)


def change_note(
    data_root: Path,
    record: Record | str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
) -> dict[str, object]:
    """Change tags and note of a run; the caller holds `changing`.

    Args:
        data_root: the database.
        record: the run, or its `table/index`.
        add: tags to add.
        remove: tags to take away.
        note: the new note; None leaves it.

    Returns:
        The new content.

    Raises:
        ArgumentError: a tag is empty, too long, or holds blanks or commas.
        DatabaseError: the run has no log folder.
    """
    path = record if isinstance(record, str) else f"{record.table}/{record.index}"
    for tag in add:
        if (
            not tag
            or len(tag) > MAX_TAG_CHARACTERS
            or not tag.isprintable()
            or any(mark in tag for mark in " ,")
        ):
            message = f"{tag!r} is not a tag: 1 to {MAX_TAG_CHARACTERS} characters without blanks and commas"
            raise ArgumentError(message)
    try:
        with held_folder(data_root, f"{LOG}/{path}") as folder:
            return _rewrite(folder / NOTE_FILE, add, remove, note)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{path} has no log folder of its own to hold tags and notes"
        raise DatabaseError(message) from error


def _rewrite(path: Path, add: Sequence[str], remove: Sequence[str], note: str | None) -> dict[str, object]:
    try:
        content: dict[str, object] = read_json(path) or {}
    except BrokenFileError:
        content = {}
    old = content.get("tags")
    tags = [str(tag) for tag in old] if isinstance(old, list) else []
    tags = [tag for tag in dict.fromkeys([*tags, *add]) if tag not in set(remove)]
    content |= {
        "format": NOTE_FORMAT,
        "tags": tags,
        "note": str(content.get("note") or "") if note is None else note,
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_atomic(path, text.encode("utf-8", "replace"))
    return content


def read_views(data_root: Path) -> dict[str, str]:
    """The views by name; none where the file is not there, or broken."""
    from rla_client.database.changes import HIDDEN

    try:
        with held_folder(data_root, HIDDEN) as folder:
            content = read_json(folder / VIEWS_FILE) or {}
    except (BrokenFileError, FileNotFoundError, NotADirectoryError):
        return {}
    views = content.get("views")
    found = views if isinstance(views, dict) else {}
    return {name: query for name, query in sorted(found.items()) if _is_view(name, query)}


def write_view(data_root: Path, name: object, query: object) -> dict[str, str]:
    """Store a view, or remove it; the caller holds `changing`.

    Args:
        data_root: the database.
        name: of the view.
        query: what the page's address has behind its `?`; None removes the view.

    Returns:
        All views as they are then.

    Raises:
        ArgumentError: name or query cannot be one, or there are too many views.
    """
    from rla_client.database.changes import HIDDEN

    views = read_views(data_root)
    if query is None:
        views.pop(str(name), None)
    elif not _is_view(name, query):
        message = (
            f"a view has a name of 1 to {MAX_NAME} printable characters and at most {MAX_QUERY} of address"
        )
        raise ArgumentError(message)
    else:
        views[str(name)] = str(query)
    if len(views) > MAX_VIEWS:
        message = f"there are {MAX_VIEWS} views already; remove one first"
        raise ArgumentError(message)
    with held_folder(data_root, HIDDEN, create=True) as folder:
        text = json.dumps({"format": VIEWS_FORMAT, "views": views}, ensure_ascii=False, indent=1)
        write_atomic(folder / VIEWS_FILE, text.encode("utf-8", "replace"))
    return dict(sorted(views.items()))


def _is_view(name: object, query: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(query, str)
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and len(query) <= MAX_QUERY
    )
