"""Truncation of an earlier run's files to the point of a resume or fork.

The opening frame (`continues`) is the intent, segment 1's base, written afterwards, its completion: a kill
in between leaves files that the next start brings to the same state. Text files keep all their lines.

* progress.csv and progress.json are cut to a number of rows, or before the first row of a later time-step;
  samples to a number of their own; event files to their size then, or before their first later event. What is
  cut off goes to the abandoned folder first.
* The new stream's event file bears a later second than all others: TensorBoard reads them in that order.
* A fork's client has copied the earlier files into a hidden folder (`staged`). They take their places after
  the last record of the stream before; a file of the run's own in the way goes to the abandoned folder
  first.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from rla_agent.outputs.encoder import TruncatePlan
from rla_agent.outputs.file_content import FileContent, read_chunks
from rla_agent.outputs.output_file import Output
from rla_agent.outputs.tensorboard import EventEncoder
from rla_client.contract.event_records import records_until, whole_records_of
from rla_client.contract.filesystem.atomic_write import atomic_file
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.layout import SAMPLES
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.spool.opening import Continuation, Opening
from rla_client.contract.text.number_parsing import MAX_TIME_S

_EVENT_FILE = re.compile(r"^events\.out\.tfevents\.(\d+)\.")
_CUT_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def continue_outputs(opening: Opening, outputs: list[Output], plan: Continuation) -> None:
    """Truncate the earlier files to the point where the stream continues, and align the outputs with them.

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
    with closing_fd(descriptor):
        content = FileContent(descriptor)
        rows = plan.samples if output.name == SAMPLES else plan.rows
        kept = output.encoder.kept(content, rows, plan.time_step, plan.saved)
        if kept is None:
            output.continue_at(content.size, None)
        else:
            _keep_tail(opening, output, kept, content, plan)
            output.continue_at(kept.size, kept.state)


def _keep_tail(
    opening: Opening, output: Output, kept: TruncatePlan, content: FileContent, plan: Continuation
) -> None:
    """Keep rows that are cut off; without any, an earlier try has done it."""
    if kept.size >= content.size:
        return
    abandoned = os.path.join(output.folder, plan.abandoned)
    with (
        closing_fd(open_folder(opening.root, abandoned, create=True)) as folder,
        atomic_file(f"/proc/self/fd/{folder}/{output.file_name}", mode=file_mode(folder)) as file,
    ):
        file.write(kept.head)
        file.writelines(content.chunks(kept.size))


def _place_staged(opening: Opening, plan: Continuation) -> None:
    log = opening.folders["log"]
    try:
        staged = open_folder(opening.root, f"{log}/{plan.staged}")
    except FileNotFoundError:
        return  # an earlier attempt has placed them all
    with closing_fd(staged):
        for below, _folders, files, source in os.fwalk(".", topdown=False, dir_fd=staged):
            with suppress(NotADirectoryError):  # a file of the run's own has the folder's name
                path = os.path.normpath(f"{log}/{below}")
                with closing_fd(open_folder(opening.root, path, create=True)) as target:
                    for name in files:
                        _make_room(opening, target, below, name, plan)
                        _sync(source, name)
                        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                    os.fsync(target)
    _drop_staged(opening, plan)


def _drop_staged(opening: Opening, plan: Continuation) -> None:
    """Remove the emptied folders of a fork's copy; files that could not be placed stay visible."""
    with closing_fd(open_folder(opening.root, opening.folders["log"])) as log:
        for below, _folders, _files, source in os.fwalk(plan.staged, topdown=False, dir_fd=log):
            with suppress(OSError):
                os.rmdir(below, dir_fd=log)
            os.fsync(source)
        with suppress(FileNotFoundError):
            os.rename(plan.staged, f"{plan.abandoned}-not-placed", src_dir_fd=log, dst_dir_fd=log)
        os.fsync(log)


def _make_room(opening: Opening, target: int, below: str, name: str, plan: Continuation) -> None:
    """Move a file of the run's own out of the way of a staged one."""
    try:
        if not os.stat(name, dir_fd=target, follow_symlinks=False).st_size:
            return
    except FileNotFoundError:
        return
    path = os.path.normpath(f"{opening.folders['log']}/{plan.abandoned}/{below}")
    _move(name, target, opening.root, path)


def _move(name: str, source: int, root: str, path: str) -> None:
    """Move a file of an open folder into another one below the data root."""
    with closing_fd(open_folder(root, path, create=True)) as target:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        os.fsync(target)


def _sync(folder: int, name: str) -> None:
    with closing_fd(os.open(name, READ_FLAGS, dir_fd=folder)) as descriptor:
        os.fsync(descriptor)


def _cut_events(output: Output, plan: Continuation) -> None:
    with closing_fd(open_folder(output.root, output.folder, create=True)) as folder:
        if plan.event_file is not None or plan.rows is not None:
            limit = max(0, _begun(plan.event_file or ""))
            for name in os.listdir(folder):
                if name == plan.event_file:
                    _truncate(folder, name, plan.event_size)
                elif _begun(name) >= limit and not same_stream(name, output.file_name):
                    log = os.path.dirname(os.path.dirname(output.folder))
                    _move(name, folder, output.root, os.path.join(log, plan.abandoned, "tb"))
        elif plan.time_step is not None:
            for name in os.listdir(folder):
                if _begun(name) >= 0 and not same_stream(name, output.file_name):
                    _cut_steps(folder, name, plan.time_step, plan.saved)
        _name_last(output, folder)
        os.fsync(folder)


def _name_last(output: Output, folder: int) -> None:
    """Have an event file's name sort behind those of the others that lie there."""
    own = output.file_name
    others = (_begun(name) for name in os.listdir(folder) if not same_stream(name, own))
    second = max(_begun(own), 1 + max(others, default=-1))
    output.use_name(own.replace(f".{_begun(own)}.", f".{second}.", 1))


def _begun(name: str) -> int:
    """The second in an event file's name, -1 for other files and for moments that no clock gives."""
    match = _EVENT_FILE.match(name)
    return int(match[1]) if match and int(match[1]) < MAX_TIME_S else -1


def same_stream(name: str, own: str) -> bool:
    """Whether an event file is of the same stream: it may have been named when others lay there."""
    first, other = _EVENT_FILE.match(name), _EVENT_FILE.match(own)
    return first is not None and other is not None and name[first.end() :] == own[other.end() :]


def _truncate(folder: int, name: str, size: int) -> None:
    with closing_fd(os.open(name, _CUT_FLAGS, dir_fd=folder)) as descriptor:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, whole_records_of(read_chunks(descriptor, size)))
            os.fsync(descriptor)


def _cut_steps(folder: int, name: str, time_step: float, saved: float) -> None:
    """Cut an event file before its first event of a later time-step."""
    with closing_fd(os.open(name, _CUT_FLAGS, dir_fd=folder)) as descriptor:
        keep = records_until(FileContent(descriptor).chunks(), time_step, saved)
        if keep is not None:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
