"""The files of a run, as anybody may have left them: listed, read piece by piece, searched, sent.

Every file is reached from its data root without following links (`contract.filesystem.safe_paths`) and opened
without waiting for a pipe or a device. Hidden names are never shown. Nothing is read whole: each answer has a
bound, and says when it was reached. What a browser gets of a run is a picture, a film, a sound, plain text,
or something to save.

**Media.** A recorded file is called `<time-step>-<name>` (a few writers put a number behind the name
instead). Files of one name in one folder are one thing over time: the page shows them under a slider.
"""

from __future__ import annotations

import codecs
import errno
import math
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from rla_client.contract.checkpoint.checkpoint_age import SaveTime, oldest_first, save_time
from rla_client.contract.checkpoint.prune_notes import pruned_files
from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder
from rla_client.contract.layout import CHECKPOINT, FOLDER_KINDS, LOG, OTHER_RESULTS, PRUNED_FOLDER, item_path
from rla_client.contract.safe_names import check_relative, component_problem
from rla_client.web.site import Entry, Site

MAX_SEEN = 200_000  # entries of folders that one answer looks at, about 1 s
MAX_LISTED = 5000  # files named in an answer
MAX_DEPTH = 20  # folders inside one another
CHUNK_BYTES = 128 << 10  # of a text at once
SEARCHED_BYTES = 512 << 20  # of a file, by one answer
SEARCH_S = 3.0
BLOCK_BYTES = 1 << 20
MAX_HITS = 200
MAX_NEEDLE = 200  # characters that are searched for
CONTEXT_BYTES = 300  # of a line, around what was found
SEND_BYTES = 256 << 10
MAX_GROUPS = 500
MAX_STEPS = 2000  # of one name; more are thinned out: a slider has no more places
SYSTEM_FILE = "system.csv"
SAMPLES = 1200  # of a long system.csv, evenly over the file
WHOLE_BYTES = 256 << 10  # a shorter one is read whole
MAX_ROW_BYTES = 2048
FOREIGN = {  # headers of what a run wrote: shown as a picture, played, saved, never run
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SHOWN = {  # by a browser in our page, without running it
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
    ".webp": "image/webp", ".svg": "image/svg+xml", ".mp4": "video/mp4", ".webm": "video/webm",
    ".wav": "audio/wav", ".mp3": "audio/mpeg",
}  # fmt: skip
_TEXT = re.compile(r"\.(txt|log|csv|jsonl?|ya?ml|md|rst|py|sh|toml|cfg|ini|c|cc|cpp|h|cu)", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_BEFORE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)-(.+)", re.DOTALL)
_BEHIND = re.compile(r"(.+?)[-_](\d{1,15})", re.DOTALL)
Step = float | None
Group = list[tuple[Step, str]]


class Found(NamedTuple):
    """A plain file: its path below the item, bytes, and modification time (Unix seconds)."""

    path: str
    size: int
    mtime: float


@dataclass(slots=True)
class Listing:
    """Files below an item, by path."""

    files: list[Found] = field(default_factory=list)
    cut: bool = False  # there are more
    passed: int = 0  # links, pipes and names that no address can hold, which are left out


def asked_run(site: Site, asked: dict[str, Any]) -> Entry:
    """The run that a question names; NoSuchRunError where there is none."""
    return site.find(str(asked.get("run", "")))


def item_of(entry: Entry, kind: str) -> str:
    """Path of a run's item below the data root; ArgumentError where there is no such kind."""
    if kind not in FOLDER_KINDS:
        raise ArgumentError(f"there is no kind {kind[:50]!r}")
    return item_path(kind, entry.record.table, entry.record.index)


@contextmanager
def item_folder(site: Site, entry: Entry, kind: str, below: tuple[str, ...] = ()) -> Iterator[Path]:
    """A folder of a run's item, held open.

    Raises:
        DatabaseError: a link or a file lies on the way. FileNotFoundError: it is not there.
    """
    path = "/".join([item_of(entry, kind), *below])
    try:
        with held_folder(site.database(entry).data_root, path) as folder:
            yield folder
    except NotADirectoryError as error:
        raise DatabaseError(f"{path} is not reached: a link or a file lies on the way") from error


@contextmanager
def item_file(site: Site, entry: Entry, kind: str, path: str) -> Iterator[BinaryIO]:
    """A file of a run's item, open for reading.

    Raises:
        ArgumentError: the path is none, or hidden.
        DatabaseError: it is not a plain file, or lies behind a link. FileNotFoundError: it is not there.
    """
    *above, name = check_relative(path)
    if any(part.startswith(".") for part in (*above, name)):
        raise ArgumentError(f"{path[:200]!r} is hidden")
    with item_folder(site, entry, kind, tuple(above)) as folder:
        try:
            file = open_plain(folder / name)
        except BrokenFileError as error:
            raise DatabaseError(f"{path[:200]} cannot be read: {error.problem}") from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "not there", path) from error
    with file:
        yield file


def _asked_file(site: Site, asked: dict[str, Any]) -> AbstractContextManager[BinaryIO]:
    return item_file(site, asked_run(site, asked), str(asked.get("kind")), str(asked.get("path")))


def list_files(site: Site, entry: Entry, kind: str) -> Listing:
    """The visible plain files below an item, by path; none where it is not there."""
    found = Listing()
    root, item = site.database(entry).data_root, item_of(entry, kind)
    folders = [""]
    while folders and not found.cut:
        below = folders.pop()
        try:
            descriptor = open_folder(root, f"{item}/{below}")
        except OSError:
            continue  # it went meanwhile, or nobody may look at it
        try:
            _list(descriptor, below, folders, found)
        finally:
            os.close(descriptor)
    found.files.sort()
    return found


def _list(descriptor: int, below: str, folders: list[str], found: Listing) -> None:
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if len(found.files) + found.passed + len(folders) >= MAX_SEEN:
                found.cut = True
                return
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if component_problem(entry.name) is not None:
                found.passed += 1
            elif stat.S_ISDIR(state.st_mode) and path.count("/") < MAX_DEPTH:
                folders.append(path)
            elif stat.S_ISREG(state.st_mode):
                found.files.append(Found(path, state.st_size, state.st_mtime))
            else:
                found.passed += 1


def listing(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The files of one kind of a run."""
    found = list_files(site, asked_run(site, asked), str(asked.get("kind")))
    return {
        "files": found.files[:MAX_LISTED],
        "count": len(found.files),
        "cut": found.cut,
        "passed": found.passed,
    }


# -- texts -------------------------------------------------------------------------------------------


def text(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """A piece of a text: its end, or what lies `before`, `after` or `around` an offset in bytes.

    Lines are whole where they are not longer than a piece. `restarted`: the file is shorter than `after`.
    """
    modes = {"before": CHUNK_BYTES, "after": 0, "around": CHUNK_BYTES // 2}  # how far back it begins
    mode = next((name for name in modes if name in asked), "")
    place = asked.get(mode, 0)
    if not isinstance(place, int) or place < 0:
        raise ArgumentError("an offset is a whole number")
    with _asked_file(site, asked) as file:
        size = written_bytes(file)
        restarted = mode == "after" and place > size
        mode = "" if restarted else mode
        start = max(0, min(place - modes[mode] if mode else size - CHUNK_BYTES, size))
        end = min(size, place if mode == "before" else start + CHUNK_BYTES)
        file.seek(start)
        block = file.read(max(0, end - start))
    if start and mode != "after":
        skipped = block.find(b"\n") + 1
        if skipped < len(block) and (mode != "around" or start + skipped <= place):
            start, block = start + skipped, block[skipped:]
    if start + len(block) < size and mode in {"after", "around"}:
        block = block[: block.rfind(b"\n") + 1] or block
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(block)
    block = block.removesuffix(decoder.getstate()[0])  # without the beginning of a character at its end
    end = start + len(block)
    return {"size": size, "start": start, "end": end, "text": readable(block), "restarted": restarted}


def readable(data: bytes) -> str:
    """Bytes of a text without terminal escapes and controls; of a progress bar what was written last."""
    shown = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    if "\r" in shown:
        shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", shown)


def search(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Lines of a file that hold a text, whatever its case (of ASCII), from an offset on.

    Returns:
        `hits` [[offset in bytes, line around it], …]; `next`: where to continue, None at the end.
    """
    needle = str(asked.get("text", ""))[:MAX_NEEDLE].encode("utf-8", "replace").lower()
    place = asked.get("from", 0)
    if not needle or not isinstance(place, int) or place < 0:
        raise ArgumentError("say what to search for")
    hits: list[list[Any]] = []
    until = time.monotonic() + SEARCH_S
    with _asked_file(site, asked) as file:
        size = written_bytes(file)
        limit = min(size, place + SEARCHED_BYTES)
        file.seek(place)
        before = b""  # the end of what was searched, so that nothing between two blocks is missed
        while place < limit and len(hits) < MAX_HITS and time.monotonic() < until:
            block = file.read(min(BLOCK_BYTES, limit - place))
            if not block:
                break
            _search(before + block, len(before), needle, place - len(before), hits)
            place += len(block)
            before = block[-CONTEXT_BYTES - len(needle) :]
    if len(hits) == MAX_HITS:
        place = hits[-1][0] + len(needle)
    return {"hits": hits, "next": place if place < size else None, "size": size}


def _search(data: bytes, known: int, needle: bytes, offset: int, hits: list[list[Any]]) -> None:
    lowered = data.lower()
    found = lowered.find(needle, max(0, known - len(needle) + 1))
    while found >= 0 and len(hits) < MAX_HITS:
        begin = max(lowered.rfind(b"\n", 0, found) + 1, found - CONTEXT_BYTES // 2)
        end = lowered.find(b"\n", found, found + CONTEXT_BYTES)
        hits.append([offset + found, readable(data[begin : end if end >= 0 else found + CONTEXT_BYTES])])
        line_end = lowered.find(b"\n", found)
        if line_end < 0:
            return
        found = lowered.find(needle, line_end)


# -- what a browser loads ----------------------------------------------------------------------------


def send(site: Site, asked: dict[str, Any]) -> Response:
    """A file for the browser, a range of it where it asks for one; see the module's text for its type."""
    with _asked_file(site, asked) as opened:
        file = os.fdopen(os.dup(opened.fileno()), "rb")
    state = os.fstat(file.fileno())
    tag = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
    headers = {**FOREIGN, "Accept-Ranges": "bytes", "ETag": tag, "Cache-Control": "private, no-cache"}
    if asked.get("if-none-match") == tag:
        file.close()
        return Response(status_code=304, headers=headers)
    name = str(asked["path"]).rpartition("/")[2]
    suffix = os.path.splitext(name)[1].lower()
    media_type = SHOWN.get(suffix) or ("text/plain; charset=utf-8" if _TEXT.fullmatch(suffix) else None)
    if media_type is None or asked.get("save"):
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    if media_type is None:
        media_type = "application/pdf" if suffix == ".pdf" else "application/octet-stream"
    span = _range(asked.get("range"), state.st_size)
    if span is None:
        file.close()
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{state.st_size}"})
    start, end = span
    headers["Content-Length"] = str(end - start)
    partial = asked.get("range") and (start, end) != (0, state.st_size)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{state.st_size}"
    return StreamingResponse(_pieces(file, start, end), 206 if partial else 200, headers, media_type)


def _range(asked: object, size: int) -> tuple[int, int] | None:
    """(begin, end) of what is to be sent; all where the range is not understood; None: beyond the end."""
    match = _RANGE.fullmatch(str(asked or "").strip())
    if match is None or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    return (start, end) if start < end else None


def _pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < end and (block := file.read(min(SEND_BYTES, end - start))):
            start += len(block)
            yield block


# -- media, checkpoints, system metrics --------------------------------------------------------------


def media(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Pictures, films and sounds of a run by name, each with its time-steps; and its other result files."""
    found = list_files(site, asked_run(site, asked), OTHER_RESULTS)
    shown = [one.path for one in found.files if _kind(one.path)]
    others = [one for one in found.files if not _kind(one.path)]
    groups = grouped(shown)
    names = sorted(groups, key=lambda name: (name.startswith(("abandoned-", "before-fork")), name))
    return {
        "groups": [
            {"name": name, "kind": _kind(name), "count": len(groups[name]), "files": _thinned(groups[name])}
            for name in names[:MAX_GROUPS]
        ],
        "names": len(names),
        "others": others[:MAX_LISTED],
        "other_count": len(others),
        "count": len(found.files),
        "cut": found.cut,
        "passed": found.passed,
    }


def _kind(path: str) -> str:
    """image, video, audio; empty for others."""
    return SHOWN.get(os.path.splitext(path)[1].lower(), "").partition("/")[0]


def _thinned(group: Group) -> Group:
    """At most `MAX_STEPS` of them, the last among them."""
    if len(group) <= MAX_STEPS:
        return group
    return [group[place * (len(group) - 1) // (MAX_STEPS - 1)] for place in range(MAX_STEPS)]


def grouped(paths: list[str]) -> dict[str, Group]:
    """Paths by their name without the time-step: [(time-step, path), …] in its order.

    A film of an episode is `<time-step>-<name>-<episode>`: such names are one where no time-step comes twice.
    """
    first: defaultdict[str, Group] = defaultdict(list)
    for path in paths:
        step, name = stepped(path)
        first[name].append((step, path))
    merged: defaultdict[str, list[str]] = defaultdict(list)
    for name, group in first.items():
        if len(group) == 1 and group[0][0] is not None and (shorter := _without_number(name)):
            merged[shorter].append(name)
    for shorter, names in merged.items():
        together = [one for name in names for one in first[name]]
        if len(names) > 1 and shorter not in first and len({step for step, _ in together}) == len(together):
            for name in names:
                del first[name]
            first[shorter] = together
    return {
        name: sorted(group, key=lambda one: (one[0] is not None, one[0] or 0, one[1]))
        for name, group in first.items()
    }


def stepped(path: str) -> tuple[Step, str]:
    """The time-step that a file's name says, and its path without it."""
    folder, slash, name = path.rpartition("/")
    match = _BEFORE.fullmatch(name)
    if match is not None and os.path.splitext(match[2])[0]:
        return float(match[1]), f"{folder}{slash}{match[2]}"
    stem, suffix = os.path.splitext(name)
    behind = _BEHIND.fullmatch(stem)
    if behind is not None:
        return float(behind[2]), f"{folder}{slash}{behind[1]}{suffix}"
    return None, path


def _without_number(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    match = _BEHIND.fullmatch(stem)
    return f"{match[1]}{suffix}" if match else ""


def checkpoints(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Files in the order of their saves: path, bytes, time, time-step, and where: `here`, or a master."""
    entry = asked_run(site, asked)
    found = list_files(site, entry, CHECKPOINT)
    rows: dict[str, list[Any]] = {one.path: [*one, stepped(one.path)[0], "here"] for one in found.files}
    orders: dict[str, int | None] = {}
    root, item = site.database(entry).data_root, item_of(entry, CHECKPOINT)
    with suppress(OSError), held_folder(root, item) as folder:
        own = [path for path in rows if "/" not in path]
        orders.update((path, save_time(folder, path, -1).order) for path in own)
        os.close(open_folder(root, f"{item}/{PRUNED_FOLDER}"))  # no link
        for note in pruned_files(folder):
            rows[note.name] = [note.name, note.size, note.mtime_ns / 1e9, stepped(note.name)[0], note.target]
            orders[note.name] = note.order
    ages = [
        SaveTime(path, -1 if row[3] is None else int(row[3]), int(row[2] * 1e9), orders.get(path))
        for path, row in rows.items()
    ]
    listed = [rows[one.name] for one in oldest_first(ages)]
    return {
        "files": listed[-MAX_LISTED:],
        "count": len(rows),
        "cut": found.cut,
        "bytes": sum(row[1] for row in rows.values()),
    }


def system(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Samples of what a run's processes used: column → numbers; of a long file evenly many.

    Empty where nothing was sampled (`sample_interval_s`).
    """
    try:
        with item_file(site, asked_run(site, asked), LOG, SYSTEM_FILE) as file:
            head, rows = _sampled(file)
    except (FileNotFoundError, DatabaseError):
        return {"columns": {}}
    wanted = [[_float(cell) for cell in row.split(",")] for row in rows]
    wanted = [row for row in wanted if len(row) == len(head) and row[0] is not None]
    columns = {name: [row[place] for row in wanted] for place, name in enumerate(head)}
    return {"columns": {name: cells for name, cells in columns.items() if any(c is not None for c in cells)}}


def _sampled(file: BinaryIO) -> tuple[list[str], list[str]]:
    """The header's names, and whole lines."""
    size = os.fstat(file.fileno()).st_size
    line = file.readline(MAX_ROW_BYTES).decode("utf-8", "replace")
    begin = file.tell()
    if size <= WHOLE_BYTES:
        lines = file.read(WHOLE_BYTES).decode("utf-8", "replace").split("\n")[:-1]
    else:
        lines = []
        for place in range(SAMPLES):
            file.seek(begin + (size - begin - MAX_ROW_BYTES) * place // (SAMPLES - 1))
            whole = file.read(MAX_ROW_BYTES).split(b"\n")
            if len(whole) > 2:  # noqa: PLR2004 - the end of one line, a whole one, the beginning of a third
                lines.append(whole[-2 if place == SAMPLES - 1 else 1].decode("utf-8", "replace"))
        lines = list(dict.fromkeys(lines))
    return line.strip().split(","), lines


def _float(cell: str) -> float | None:
    with suppress(ValueError):
        found = float(cell)
        return found if math.isfinite(found) else None
    return None
