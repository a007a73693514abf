"""A stream that continues in the files of an earlier one: exact resume and fork.

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
* Text files keep all their lines and continue at their end.
* A fork's client has copied the earlier run's files into a hidden folder (`staged`). They take their
  places now, after the last record of the stream before; a file of the run's own that is in the way
  goes to the abandoned folder first.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from rla_agent.outputs.content import Content, read_chunks
from rla_agent.outputs.encoders import Kept
from rla_agent.outputs.output import Output
from rla_agent.outputs.tensorboard import EventEncoder, records_until, whole_records_of
from rla_client.contract.files import atomic_file, file_mode, open_folder
from rla_client.contract.opening import Continuation, Opening
from rla_client.contract.parsing import MAX_TIME_S

_EVENT_FILE = re.compile(r"^events\.out\.tfevents\.(\d+)\.")


def continue_outputs(opening: Opening, outputs: list[Output], plan: Continuation) -> None:
    """Bring the earlier files to the point where the stream continues, and the outputs with them.

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
        content = Content(descriptor)
        kept = output.encoder.kept(content, plan.rows, plan.time_step)
        output.size = content.size if kept is None else kept.size
        if kept is not None:
            _keep_tail(opening, output, kept, content, plan)
            output.encoder.restore(kept.state)
    finally:
        os.close(descriptor)


def _keep_tail(opening: Opening, output: Output, kept: Kept, content: Content, plan: Continuation) -> None:
    """Keep rows that are cut off; without any, an earlier try has done it."""
    if kept.size >= content.size:
        return
    folder = open_folder(opening.root, os.path.join(output.folder, plan.abandoned), create=True)
    try:
        with atomic_file(f"/proc/self/fd/{folder}/{output.file_name}", mode=file_mode(folder)) as file:
            file.write(kept.head)
            file.writelines(content.chunks(kept.size))
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
                elif _begun(name) >= limit and not same_stream(name, output.file_name):
                    _put_away(output, folder, name, plan)
        elif plan.time_step is not None:
            for name in os.listdir(folder):
                if _begun(name) >= 0 and not same_stream(name, output.file_name):
                    _cut_steps(folder, name, plan.time_step)
        _name_last(output, folder)
        os.fsync(folder)
    finally:
        os.close(folder)


def _name_last(output: Output, folder: int) -> None:
    """Have an event file's name sort behind those of the others that lie there."""
    own = output.file_name
    others = (_begun(name) for name in os.listdir(folder) if not same_stream(name, own))
    second = max(_begun(own), 1 + max(others, default=-1))
    output.file_name = own.replace(f".{_begun(own)}.", f".{second}.", 1)


def _begun(name: str) -> int:
    """The second in an event file's name, -1 for other files and for moments that no clock gives."""
    match = _EVENT_FILE.match(name)
    return int(match[1]) if match and int(match[1]) < MAX_TIME_S else -1


def same_stream(name: str, own: str) -> bool:
    """Whether an event file is of the same stream: it may have been named when others lay there."""
    first, other = _EVENT_FILE.match(name), _EVENT_FILE.match(own)
    return first is not None and other is not None and name[first.end() :] == own[other.end() :]


def _truncate(folder: int, name: str, size: int) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, whole_records_of(read_chunks(descriptor, size)))
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut_steps(folder: int, name: str, time_step: float) -> None:
    """Cut an event file before its first event of a later time-step."""
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        keep = records_until(read_chunks(descriptor, os.fstat(descriptor).st_size), time_step)
        if keep is not None:
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
