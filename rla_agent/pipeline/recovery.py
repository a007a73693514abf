"""Bringing a stream's outputs to a point from which the spool can be replayed.

One path for a new stream, a restart and a lost agent.db:

* agent.db knows the outputs: complete a pending rename, cut each file to its durable size;
* it does not, or only knows segments that are gone, but the spool has base files: cut to the
  sizes in the newest, and replay the segments from there on; without base files agent.db counts;
* the run went on elsewhere, or the spool is a copy: files of its own beside it (`runs.step_aside`);
* the data root was away under a live stream: what is not durable in the outputs is replayed, all else stays;
* neither: a new stream. Files of an earlier run in a plain folder are put aside, and the base of
  segment 1 is written, so that a crash from here on finds one.

Files are only ever cut, never extended; afterwards replay writes the same bytes again.

A new stream may continue in the files of an earlier one: exact resume and fork. The opening frame says how
much of the earlier files counts (`continues`). All of that can be repeated: the opening frame in the spool is
the intent, the base of segment 1, written afterwards, its completion. A kill in between leaves files that the
next start brings to the same state.

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

import errno
import json
import logging
import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.model.ingest import Close, Position
from rla_agent.model.states import StreamEvent
from rla_agent.outputs.data_roots import item_is_there
from rla_agent.outputs.encoders import Content, Kept, read_chunks
from rla_agent.outputs.output import OpenFiles, Output, make_outputs
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.pipeline.runs import step_aside
from rla_agent.pipeline.stream import CONTROL, LOST, MOST_SEGMENT_BYTES, Stream
from rla_agent.store.database import AgentDatabase, OutputRow, making_sense
from rla_client.contract.event_records import records_until, whole_records_of
from rla_client.contract.filesystem.atomic_write import (
    OLD_TEMP_S,
    TEMP_PREFIX,
    UNNAMED_TEMP,
    atomic_file,
    fsync_file,
    fsync_folder,
    write_atomic,
)
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import ItemGoneError, open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.spool.opening import Continuation, Opening
from rla_client.contract.spool.segments import base_path, read_at, segment_numbers, segment_path
from rla_client.contract.text.number_parsing import MAX_TIME_S

_EVENT_FILE = re.compile(r"^events\.out\.tfevents\.(\d+)\.")
_CUT_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger("rla_agent.pipeline.recovery")


def recover(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Align the outputs of a stream and open them.

    The item is missed when its folder is gone; an output that cannot be opened now is
    marked as failed and tried again later.

    Raises:
        OSError: it cannot be done now.
    """
    rows = _rows_of(stream, database)
    live = all(output.anchor is not None for output in stream.outputs), stream.aside
    try:
        os.close(open_folder(stream.opening.root, stream.opening.folders["log"]))  # the item is there
        aside = step_aside(stream, rows[CONTROL].position if CONTROL in rows else stream.durable)
        if live == (True, aside):
            _go_back(stream, rows)
        elif aside:
            _beside(stream, rows)
        elif CONTROL in rows and _rows_count(stream, rows):
            _from_rows(stream, rows)
        else:
            _from_base(stream)
        sweep_leftovers(stream, database)
        for output in stream.outputs:
            output.anchor = output.row()
            output.try_begin(files)
        _sync_folders(stream)
    except (ItemGoneError, FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, NotADirectoryError) and item_is_there(stream.opening):
            raise
        stream.handle(StreamEvent.MISSED)
        if CONTROL in rows:
            _restore_control(stream, rows[CONTROL])


def _rows_of(stream: Stream, database: AgentDatabase) -> dict[str, OutputRow]:
    """What agent.db knows of a stream; an earlier release noted what was lost in the run's record."""
    rows = database.outputs_of(stream.name)
    if CONTROL in rows and LOST not in rows[CONTROL].state:
        known = database.run(stream.opening.run) or {}
        rows[CONTROL].state[LOST] = known.get("lost", 0), 0
    return rows


def sweep_leftovers(stream: Stream, database: AgentDatabase) -> None:
    """Remove temp files that killed processes left beside the stream's outputs.

    A temp file of a rewrite bears its stream's name: one agent at a time has the stream, so when it
    takes the stream up or ends it, files of that name belong to nobody, unless agent.db says that one
    is about to take an output's name (an intent). Others (run.json, item files, what a client writes)
    may be in the making in another process, and go only when they are old.
    """
    intents = database.intents()
    for folder in {output.folder for output in stream.outputs}:
        sweep_temp_files(stream.opening.root, folder, stream.name, intents, time.time())


def sweep_temp_files(root: str, below: str, stream: str, intents: Collection[str], now: float) -> None:
    """Remove what killed processes left in one folder of a stream's outputs.

    Args:
        root: data root.
        below: the folder, relative to it.
        stream: its own temp files go whatever their age.
        intents: names that a rename still waits for.
        now: Unix seconds, against which the age of other temp files counts.
    """
    with suppress(OSError), closing_fd(open_folder(root, below)) as folder:  # not listed now: next time
        for name in os.listdir(folder):
            if name in intents or not name.startswith(TEMP_PREFIX):
                continue
            with suppress(OSError):
                if not name.startswith(f"{TEMP_PREFIX}{stream}-"):
                    written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    if not UNNAMED_TEMP.match(name) or now - written < OLD_TEMP_S:
                        continue
                os.unlink(name, dir_fd=folder)


def _sync_folders(stream: Stream) -> None:
    """Make the item's folders durable; only that of its rows has to be there."""
    for kind, folder in stream.opening.folders.items():
        try:
            _fsync_up(stream.opening.root, folder)
        except (FileNotFoundError, NotADirectoryError):
            if kind == "log":
                raise


def _fsync_up(root: str, relative: str) -> None:
    """Make the chain of folders from `relative` up to `root` durable."""
    path = Path(relative)
    while True:
        with closing_fd(open_folder(root, str(path))) as folder:
            os.fsync(folder)
        if str(path) == ".":
            return
        path = path.parent


def _from_rows(stream: Stream, rows: dict[str, OutputRow]) -> None:
    _restore_control(stream, rows[CONTROL])
    number, base = _newest_base(stream)
    for output in stream.outputs:
        row = rows.get(output.name)
        if row is not None:
            _restore(output, row)
        elif base is not None:  # it could not be stored since agent.db was lost
            _restore_base(output, base, number)


def _rows_count(stream: Stream, rows: dict[str, OutputRow]) -> bool:
    """Whether agent.db says where to continue: its segments are there, or nothing else knows better.

    A writer whose spool was deleted wrote only its open segment anew; what came before that and no agent had
    taken in is lost, and the files continue behind it.
    """
    known = min(row.position.number for row in rows.values())
    if known >= stream.first_segment:
        return True
    if _newest_base(stream)[1] is not None:
        return False
    _log.warning("segments %d to %d of stream %s are gone", known, stream.first_segment - 1, stream.name)
    return True


def _restore(output: Output, row: OutputRow) -> None:
    with making_sense(f"agent.db, of {output.path},"):
        _name(output, os.path.basename(row.path))
        output.restore_row(row)
        if row.intent and (os.path.dirname(row.intent) or not row.intent.startswith(TEMP_PREFIX)):
            raise ValueError(row.intent)  # agent.db may be a copy that somebody gave us
    if row.intent:  # the rename that a commit announced
        output.take_name(row.intent)
    output.align_columns()


def _go_back(stream: Stream, rows: dict[str, OutputRow]) -> None:
    """Go back with the outputs alone: rows and jobs that the stream has counted are not counted again."""
    anchors = {output.name: output.anchor for output in stream.outputs}
    stream.outputs = make_outputs(stream.opening, stream.name)  # rewrites under way are of the former ones
    for output in stream.outputs:
        row = rows.get(output.name) or anchors[output.name]
        if row is not None:
            _restore(output, row)
    stream.touch()


def _beside(stream: Stream, rows: dict[str, OutputRow]) -> None:
    """Go on in the stream's own folders, or begin in them with all that the spool still holds."""
    stored = {row.path for name, row in rows.items() if name != CONTROL}
    if CONTROL in rows and stored and stored <= {output.path for output in stream.outputs}:
        _from_rows(stream, rows)
        return
    stream.position = Position(min(segment_numbers(stream.folder), default=stream.first_segment), 0)
    for output in stream.outputs:
        output.position = stream.position


def _restore_control(stream: Stream, row: OutputRow) -> None:
    with making_sense(f"agent.db, of stream {stream.name},"):
        stream.rows = int(row.state.get("rows", 0))
        stream.damaged = int(row.state.get("damaged", 0))
        lost, others = row.state[LOST]
        stream.lost = int(lost), int(others)
        stream.watch_state = row.state.get("watch")
        stream.bases = {int(number): base for number, base in row.state.get("bases", {}).items()}
        closed = row.state.get("closed")
        if closed is not None:
            state, reason, moment = closed
            stream.closed = Close(str(state), str(reason), float(moment))
    stream.position = stream.durable = row.position


def _from_base(stream: Stream) -> None:
    number, base = _newest_base(stream)
    if base is None:
        _begin_new(stream)
        return
    stream.replayed = True
    stream.position = Position(number, 0)
    stream.rows = int(base["control"].get("rows", 0))
    for output in stream.outputs:
        _restore_base(output, base, number)


def _restore_base(output: Output, base: dict[str, Any], number: int) -> None:
    output.position = Position(number, 0)
    known = base["outputs"].get(output.name)
    if known is None:
        return
    with making_sense(f"the base file of segment {number}, of {output.name},"):
        _name(output, os.path.basename(str(known["file"])))
        output.restore_base(known, number)
    output.align_columns()


def _name(output: Output, name: str) -> None:
    """Go on in the file of this name, if it can be the output's own.

    Raises:
        ValueError: it is another file of the folder.
    """
    if name != output.file_name and not same_stream(name, output.file_name):
        raise ValueError(name)
    output.file_name = name


def _newest_base(stream: Stream) -> tuple[int, dict[str, Any] | None]:
    """A base is written once every output is durably past it: older segments are left-overs.

    A damaged one is as none.
    """
    for number in reversed(segment_numbers(stream.folder)):
        with suppress(FileNotFoundError, ValueError, RecursionError):
            base = json.loads(read_at(base_path(stream.folder, number), 0, MOST_SEGMENT_BYTES))
            match base:
                case {"control": dict() as control, "outputs": dict()} if isinstance(
                    control.get("rows", 0), int
                ):
                    return number, base
    return 0, None


def renew_base(stream: Stream, outputs: list[Output]) -> None:
    """Have the newest base say of some outputs what they are now; where none is readable, a new one of all.

    Raises:
        OSError: it could not be made durable, or not all that a new one would say is.
    """
    number, base = _newest_base(stream)
    if base is None:
        if not all(output.storable for output in stream.outputs):
            raise OSError(errno.EAGAIN, "its base file is damaged, and a new one has to wait")
        number = min(segment_numbers(stream.folder), default=stream.first_segment)
        outputs, base = stream.outputs, {"control": stream.bases.get(number, {}), "outputs": {}}
    base["outputs"].update({output.name: output.base() for output in outputs})
    write_atomic(base_path(stream.folder, number), json.dumps(base).encode(), mode=0o600)


def _begin_new(stream: Stream) -> None:
    """A stream that nobody has seen: what lies there already is not ours, unless it continues in it."""
    plan = stream.opening.continues
    if plan is not None:
        continue_outputs(stream.opening, stream.outputs, plan)
        stream.rows = max((output.encoder.rows for output in stream.outputs), default=0)
    for output in stream.outputs:
        if plan is None:
            output.put_aside()
        output.position = stream.position
    number = stream.first_segment
    fsync_file(segment_path(stream.folder, number))  # with the opening frame, or the stream would be nobody's
    stream.write_base(number)
    fsync_folder(stream.folder)
    fsync_folder(stream.folder.parent)


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
    with closing_fd(descriptor):
        content = Content(descriptor)
        kept = output.encoder.kept(content, plan.rows, plan.time_step)
        output.size = content.size if kept is None else kept.size
        if kept is not None:
            _keep_tail(opening, output, kept, content, plan)
            output.encoder.restore(kept.state)


def _keep_tail(opening: Opening, output: Output, kept: Kept, content: Content, plan: Continuation) -> None:
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
        return  # an earlier try has placed them all
    with closing_fd(staged):
        for below, _folders, files, source in os.fwalk(".", topdown=False, dir_fd=staged):
            with suppress(NotADirectoryError):  # a file of the run's own is called like the folder
                path = os.path.normpath(f"{log}/{below}")
                with closing_fd(open_folder(opening.root, path, create=True)) as target:
                    for name in files:
                        _make_room(opening, target, below, name, plan)
                        _sync(source, name)
                        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                    os.fsync(target)
    _drop_staged(opening, plan)


def _drop_staged(opening: Opening, plan: Continuation) -> None:
    """Remove the emptied folders of a fork's copy; what found no place is kept in sight."""
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
                    _cut_steps(folder, name, plan.time_step)
        _name_last(output, folder)
        os.fsync(folder)


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
    with closing_fd(os.open(name, _CUT_FLAGS, dir_fd=folder)) as descriptor:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, whole_records_of(read_chunks(descriptor, size)))
            os.fsync(descriptor)


def _cut_steps(folder: int, name: str, time_step: float) -> None:
    """Cut an event file before its first event of a later time-step."""
    with closing_fd(os.open(name, _CUT_FLAGS, dir_fd=folder)) as descriptor:
        keep = records_until(Content(descriptor).chunks(), time_step)
        if keep is not None:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
