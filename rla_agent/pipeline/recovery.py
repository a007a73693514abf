"""Bringing a stream's outputs to a point from which the spool can be replayed.

One path for a new stream, a restart and a lost agent.db:

* agent.db knows the outputs: complete a pending rename, cut each file to its durable size;
* it does not, or only knows segments that are gone, but the spool has base files: cut to the
  sizes in the newest, and replay the segments from there on; without base files agent.db counts;
* the run went on elsewhere, or the spool is a copy: files of its own beside it (fencing.py);
* the data root was away under a live stream: what is not durable in the outputs is replayed, all else stays;
* neither: a new stream. Files of an earlier run in a plain folder are put aside, and the base of
  segment 1 is written, so that a crash from here on finds one.

Files are only ever cut, never extended; afterwards replay writes the same bytes again.

A finished temp file takes an output's name, whatever happens in between.

First one transaction stores what the output is from now on, together with the temp file's name
(the intent); then the rename and a sync of the folder; the next commit clears the intent. After a
crash in between, recovery renames.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rla_agent.model.ingest import Close, Position
from rla_agent.model.states import OutputEvent, StreamEvent
from rla_agent.outputs.item_folder import ItemGoneError, fsync_up, item_is_there, sweep_temp_files
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output import Output, make_outputs
from rla_agent.pipeline.fencing import step_aside
from rla_agent.pipeline.reader import MOST_SEGMENT_BYTES
from rla_agent.pipeline.stream import CONTROL, Stream
from rla_agent.pipeline.truncate import continue_outputs, same_stream
from rla_agent.store.state import AgentDatabase, Changes, OutputRow, making_sense
from rla_client.contract.files import (
    TEMP_PREFIX,
    fsync_file,
    fsync_folder,
    held_folder,
    open_folder,
    write_atomic,
)
from rla_client.contract.segments import base_path, read_at, segment_numbers, segment_path

_log = logging.getLogger("rla_agent.pipeline.recovery")


def recover(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Align the outputs of a stream and open them.

    The item is missed when its folder is gone; an output that cannot be opened now is
    marked as failed and tried again later.

    Raises:
        OSError: it cannot be done now.
    """
    rows = database.outputs_of(stream.name)
    live = all(output.anchor is not None for output in stream.outputs), stream.aside
    try:
        _check_item(stream)
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
            try:
                output.begin(files)
            except ItemGoneError:
                raise
            except OSError as error:
                output.fail(error)
        _sync_folders(stream)
    except (ItemGoneError, FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, NotADirectoryError) and item_is_there(stream.opening):
            raise
        stream.handle(StreamEvent.MISSED)
        if CONTROL in rows:
            _restore_control(stream, rows[CONTROL])


def sweep_leftovers(stream: Stream, database: AgentDatabase) -> None:
    """Remove temp files that a kill left beside the stream's outputs; pending intents stay."""
    intents = database.intents()
    for folder in {output.folder for output in stream.outputs}:
        sweep_temp_files(stream.opening.root, folder, stream.name, intents, time.time())


def _check_item(stream: Stream) -> None:
    os.close(open_folder(stream.opening.root, stream.opening.folders["log"]))


def _sync_folders(stream: Stream) -> None:
    """Make the item's folders durable; only that of its rows has to be there."""
    for kind, folder in stream.opening.folders.items():
        try:
            fsync_up(stream.opening.root, folder)
        except (FileNotFoundError, NotADirectoryError):
            if kind == "log":
                raise


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
        take_name(output, row.intent)
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
        _begin_new(stream, stream.first_segment)
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
            content = json.loads(read_at(base_path(stream.folder, number), 0, MOST_SEGMENT_BYTES))
            if _is_base(content):
                return number, content
    return 0, None


def _is_base(content: object) -> bool:
    if not isinstance(content, dict):
        return False
    control = content.get("control")
    if not isinstance(control, dict) or not isinstance(control.get("rows", 0), int):
        return False
    return isinstance(content.get("outputs"), dict)


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


def _begin_new(stream: Stream, number: int) -> None:
    """A stream that nobody has seen: what lies there already is not ours, unless it continues in it."""
    plan = stream.opening.continues
    if plan is not None:
        continue_outputs(stream.opening, stream.outputs, plan)
        stream.rows = max((output.encoder.rows for output in stream.outputs), default=0)
    for output in stream.outputs:
        if plan is None:
            output.put_aside()
        output.position = stream.position
    fsync_file(segment_path(stream.folder, number))  # with the opening frame, or the stream would be nobody's
    stream.write_base(number)
    fsync_folder(stream.folder)
    fsync_folder(stream.folder.parent)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A finished temp file."""

    temp: str
    size: int
    columns: list[str]
    seconds: float


def replace_file(
    stream: Stream, output: Output, rewritten: Rewritten, files: OpenFiles, database: AgentDatabase
) -> bool:
    """Store that a finished temp file is the output's content from now on, then give it the name.

    Returns:
        False when that could not be stored; the old file stays and the temp file is gone.
    """
    size, state = output.size, output.encoder.state()
    output.encoder.restore({**state, "columns": rewritten.columns})
    output.size = rewritten.size
    output.generation += 1
    try:
        database.commit(Changes(outputs=[(stream.name, output.row(intent=rewritten.temp))]))
    except sqlite3.OperationalError as error:
        output.size = size
        output.encoder.restore(state)
        output.fail(OSError(0, str(error)))
        with suppress(OSError), held_folder(output.root, output.folder) as folder:
            (folder / rewritten.temp).unlink()
        return False
    output.durable = output.position
    output.handle(OutputEvent.REWRITTEN, rewritten.temp)
    files.close(output)
    finish_intent(stream, output)
    return True


def finish_intent(stream: Stream, output: Output) -> None:
    """Give a stored temp file its name; on failure the output waits, and this is called again."""
    try:
        take_name(output, output.intent)
    except (FileNotFoundError, NotADirectoryError):
        stream.handle(StreamEvent.MISSED)
    except OSError as error:
        output.fail(error)
    else:
        output.handle(OutputEvent.RENAMED)
        output.touch()
        stream.touch()  # the next commit clears the intent


def take_name(output: Output, temp: str) -> None:
    """Rename a temp file to an output's name, durably; it may have been done already.

    Raises:
        OSError: it is not sure to be done.
    """
    folder = open_folder(output.root, output.folder)
    try:
        with suppress(FileNotFoundError):
            os.rename(temp, output.file_name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)
