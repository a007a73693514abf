"""A stream that goes on in the files of an earlier one: exact resume and fork.

The opening frame says how much of the earlier files counts (`continues`). Everything here can be
repeated: the opening frame in the spool is the intent, the base of segment 1, written afterwards,
its completion. A kill in between leaves files that the next start brings to the same state.

* progress.csv and progress.json are cut to a number of rows, or before the first row of a later time-step;
  the rows after it go to the abandoned folder first.
* The event file that was being written is cut to its size then; event files that were begun later
  go to the abandoned folder. Where only a time-step is known, each is cut before its first later event.
  The continuing stream writes an event file of its own.
* The new stream's event file bears a later second than all others, whatever the clock says:
  TensorBoard reads event files in the order of their names.
* Text files keep all their lines and go on at their end.
* A fork's client has copied the earlier run's files into a hidden folder (`staged`). They take their
  places now, after the last record of the stream before; a file of the run's own that is in the way
  goes to the abandoned folder first.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, takewhile

from rla_agent.outputs.csv_table import CsvEncoder, record_ends
from rla_agent.outputs.encoders import JsonEncoder
from rla_agent.outputs.output import Output
from rla_agent.outputs.repair import read_chunks, read_header, text_of
from rla_agent.outputs.tensorboard import EventEncoder, records_until, whole_records
from rla_client.contract.bounded import MAX_TIME_S
from rla_client.contract.files import file_mode, open_folder, write_atomic
from rla_client.contract.opening import Continuation, Opening
from rla_client.contract.textformat import cells_of

_EVENT_FILE = re.compile(r"^events\.out\.tfevents\.(\d+)\.")


def continue_outputs(opening: Opening, outputs: list[Output], plan: Continuation) -> None:
    """Bring the earlier files to the point where the stream goes on, and the outputs with them.

    Raises:
        OSError: a file cannot be read or written; the next start tries again.
    """
    if plan.staged and opening.primary:
        _place_staged(opening, plan)
    for output in outputs:
        if isinstance(output.encoder, EventEncoder):
            _cut_events(output, plan)
        else:
            _take_over(opening, output, plan)


def _take_over(opening: Opening, output: Output, plan: Continuation) -> None:
    try:
        descriptor = output.open_file()
    except FileNotFoundError:
        return
    try:
        size = os.fstat(descriptor).st_size
        encoder = output.encoder
        if isinstance(encoder, CsvEncoder):
            content = b"".join(read_chunks(descriptor, size))
            keep, rows = _kept_csv(content, plan)
            _keep_tail(opening, output, content[: next(record_ends([content]), 0)], content[keep:], plan)
            encoder.restore({"rows": rows, "columns": read_header(descriptor)})
            output.size = keep
        elif isinstance(encoder, JsonEncoder):
            content = b"".join(read_chunks(descriptor, size))
            keep, rows = _kept_lines(content, plan)
            _keep_tail(opening, output, b"", content[keep:], plan)
            encoder.restore({"rows": rows})
            output.size = keep
        else:
            output.size = size
    finally:
        os.close(descriptor)


def _kept_csv(content: bytes, plan: Continuation) -> tuple[int, int]:
    """Bytes to keep and rows in them."""
    ends = list(record_ends([content]))
    if not ends:
        return 0, 0
    total = len(ends) - 1
    if plan.rows is not None:
        rows = min(plan.rows, total)
    elif plan.time_step is not None:
        rows = sum(1 for _ in _csv_rows_until(content[: ends[-1]], plan.time_step))
    else:
        rows = total
    return ends[rows], rows


def _csv_rows_until(content: bytes, time_step: float) -> Iterator[dict[str, str]]:
    ends = list(record_ends([content]))
    columns = cells_of(text_of(content[: ends[0]]))
    for begin, end in pairwise(ends):
        row = dict(zip(columns, cells_of(text_of(content[begin:end])), strict=False))
        try:
            later = float(row.get("time-step") or 0) > time_step
        except ValueError:
            later = False
        if later:
            return
        yield row


def _kept_lines(content: bytes, plan: Continuation) -> tuple[int, int]:
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    if plan.rows is not None:
        rows = min(plan.rows, len(lines))
    elif plan.time_step is not None:
        rows = sum(1 for _ in takewhile(lambda line: not _is_later(line, plan.time_step), lines))
    else:
        rows = len(lines)
    return sum(map(len, lines[:rows])), rows


def _is_later(line: bytes, time_step: float | None) -> bool:
    """Whether a row of progress.json is of a later time-step."""
    try:
        return float(json.loads(line)["time-step"]) > (math.inf if time_step is None else time_step)
    except (ValueError, TypeError, LookupError):
        return False


def _keep_tail(opening: Opening, output: Output, head: bytes, tail: bytes, plan: Continuation) -> None:
    """Keep rows that are cut off; an empty tail means that an earlier try has done it."""
    if not tail:
        return
    folder = open_folder(opening.root, os.path.join(output.folder, plan.abandoned), create=True)
    try:
        write_atomic(f"/proc/self/fd/{folder}/{output.file_name}", head + tail, mode=file_mode(folder))
    finally:
        os.close(folder)


def _place_staged(opening: Opening, plan: Continuation) -> None:
    log = opening.folders["log"]
    try:
        staged = open_folder(opening.root, f"{log}/{plan.staged}")
    except FileNotFoundError:
        return  # an earlier try has placed them all
    try:
        for below, _folders, files, source in os.fwalk(".", topdown=False, dir_fd=staged):
            with suppress(NotADirectoryError):  # a file of the run's own is called like the folder
                target = open_folder(opening.root, os.path.normpath(f"{log}/{below}"), create=True)
                try:
                    for name in files:
                        _make_room(opening, target, below, name, plan)
                        _sync(source, name)
                        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                    os.fsync(target)
                finally:
                    os.close(target)
    finally:
        os.close(staged)
    _drop_staged(opening, plan)


def _drop_staged(opening: Opening, plan: Continuation) -> None:
    """Remove the emptied folders of a fork's copy; what found no place is kept in sight."""
    path = open_folder(opening.root, opening.folders["log"])
    try:
        for below, _folders, _files, source in os.fwalk(plan.staged, topdown=False, dir_fd=path):
            with suppress(OSError):
                os.rmdir(below, dir_fd=path)
            os.fsync(source)
        with suppress(FileNotFoundError):
            os.rename(plan.staged, f"{plan.abandoned}-not-placed", src_dir_fd=path, dst_dir_fd=path)
        os.fsync(path)
    finally:
        os.close(path)


def _make_room(opening: Opening, target: int, below: str, name: str, plan: Continuation) -> None:
    """Move a file of the run's own out of the way of a staged one."""
    try:
        if not os.stat(name, dir_fd=target, follow_symlinks=False).st_size:
            return
    except FileNotFoundError:
        return
    path = os.path.normpath(f"{opening.folders['log']}/{plan.abandoned}/{below}")
    aside = open_folder(opening.root, path, create=True)
    try:
        os.rename(name, name, src_dir_fd=target, dst_dir_fd=aside)
        os.fsync(aside)
    finally:
        os.close(aside)


def _sync(folder: int, name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut_events(output: Output, plan: Continuation) -> None:
    folder = open_folder(output.root, output.folder, create=True)
    try:
        if plan.event_file is not None or plan.rows is not None:
            limit = max(0, _begun(plan.event_file or ""))
            for name in os.listdir(folder):
                if name == plan.event_file:
                    _truncate(folder, name, plan.event_size)
                elif _begun(name) >= limit and not _same_stream(name, output.file_name):
                    _put_away(output, folder, name, plan)
        elif plan.time_step is not None:
            for name in os.listdir(folder):
                if _begun(name) >= 0 and not _same_stream(name, output.file_name):
                    _cut_steps(folder, name, plan.time_step)
        _name_last(output, folder)
        os.fsync(folder)
    finally:
        os.close(folder)


def _name_last(output: Output, folder: int) -> None:
    """Have an event file's name sort behind those of the others that lie there."""
    own = output.file_name
    others = (_begun(name) for name in os.listdir(folder) if not _same_stream(name, own))
    second = max(_begun(own), 1 + max(others, default=-1))
    output.file_name = own.replace(f".{_begun(own)}.", f".{second}.", 1)


def _begun(name: str) -> int:
    """The second in an event file's name, -1 for other files and for moments that no clock gives."""
    match = _EVENT_FILE.match(name)
    return int(match[1]) if match and int(match[1]) < MAX_TIME_S else -1


def _same_stream(name: str, own: str) -> bool:
    """Whether an event file is of the same stream: it may have been named when others lay there."""
    first, other = _EVENT_FILE.match(name), _EVENT_FILE.match(own)
    return first is not None and other is not None and name[first.end() :] == own[other.end() :]


def _truncate(folder: int, name: str, size: int) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_size > size:
            content = b"".join(read_chunks(descriptor, size))
            os.ftruncate(descriptor, whole_records(content))
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut_steps(folder: int, name: str, time_step: float) -> None:
    """Cut an event file before its first event of a later time-step."""
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        size = os.fstat(descriptor).st_size
        content = b"".join(read_chunks(descriptor, size))
        keep = records_until(content, time_step)
        if keep < size:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_away(output: Output, folder: int, name: str, plan: Continuation) -> None:
    log = os.path.dirname(os.path.dirname(output.folder))
    target = open_folder(output.root, os.path.join(log, plan.abandoned, "tb"), create=True)
    try:
        os.rename(name, name, src_dir_fd=folder, dst_dir_fd=target)
        os.fsync(target)
    finally:
        os.close(target)
