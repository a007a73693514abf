"""Recovery of a stream's outputs to a point from which the spool can be replayed.

One path for a new stream, a restart and a lost agent.db. Outputs are only ever cut, never extended;
afterwards replay writes the same bytes again. Segments are never cut: a torn frame at the end of one is
skipped (`model/frame_decoder.py`).

* agent.db knows the outputs: complete a pending rename, cut each file to its durable size;
* it does not, or only knows segments that are gone, but the spool has base files: cut to the sizes in the
  newest, and replay the segments from there on; without base files agent.db counts;
* the run was continued elsewhere, or the spool is a copy: files of its own beside it (`fencing.fence`);
* the data root was missing under a live stream: what is not durable in the outputs is replayed, all else
  stays;
* neither: a new stream. Files of an earlier run in a plain folder are put aside, and segment 1's base is
  written.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from rla_agent.model.records import Position
from rla_agent.model.stream_states import StreamEvent
from rla_agent.outputs.data_root_presence import item_is_there
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.fencing import fence
from rla_agent.pipeline.resume_fork import continue_outputs, same_stream
from rla_agent.pipeline.segment_base import newest_base, write_base
from rla_agent.pipeline.stream import CONTROL, Stream
from rla_agent.pipeline.temp_files import sweep_leftovers
from rla_agent.store.agent_db import AgentDatabase, OutputRow, making_sense
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_file, fsync_folder
from rla_client.contract.filesystem.safe_paths import ItemGoneError, open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.spool.segments import segment_numbers, segment_path

_log = logging.getLogger("rla_agent.pipeline.recovery")


def recover(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Align the outputs of a stream and open them.

    An item whose folder is gone is marked as missing; an output that cannot be opened now is marked
    as failed and retried later.

    Raises:
        OSError: a file or folder cannot be read or written now.
    """
    rows = database.outputs_of(stream.name)
    live = all(output.anchor is not None for output in stream.outputs), stream.aside
    try:
        os.close(open_folder(stream.opening.root, stream.opening.folders["log"]))  # the item is there
        aside = fence(stream, rows[CONTROL].position if CONTROL in rows else stream.durable)
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
            output.set_anchor()
            output.try_begin(files)
        _sync_folders(stream)
    except (ItemGoneError, FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, NotADirectoryError) and item_is_there(stream.opening):
            raise
        stream.handle(StreamEvent.MISSED)
        if CONTROL in rows:
            _restore_control(stream, rows[CONTROL])


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
    number, base = newest_base(stream)
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
    if newest_base(stream)[1] is not None:
        return False
    _log.warning("segments %d to %d of stream %s are gone", known, stream.first_segment - 1, stream.name)
    return True


def _restore(output: Output, row: OutputRow) -> None:
    with making_sense(f"agent.db, of {output.path},"):
        _name(output, os.path.basename(row.path))
        output.restore_row(row)
        if row.intent and (os.path.dirname(row.intent) or not row.intent.startswith(TEMP_PREFIX)):
            raise ValueError(row.intent)  # agent.db may be somebody's copy: not trusted
    if row.intent:  # the rename that a commit announced
        output.take_name(row.intent)
    output.align_columns()


def _go_back(stream: Stream, rows: dict[str, OutputRow]) -> None:
    """Rewind the outputs alone: rows and jobs that the stream has counted are not counted again."""
    anchors = {output.name: output.anchor for output in stream.outputs}
    stream.renew_outputs()
    for output in stream.outputs:
        row = rows.get(output.name) or anchors[output.name]
        if row is not None:
            _restore(output, row)


def _beside(stream: Stream, rows: dict[str, OutputRow]) -> None:
    """Continue in the stream's own folders, or begin in them with all that the spool still holds."""
    stored = {row.path for name, row in rows.items() if name != CONTROL}
    if CONTROL in rows and stored and stored <= {output.path for output in stream.outputs}:
        _from_rows(stream, rows)
        return
    stream.begin_at(Position(min(segment_numbers(stream.folder), default=stream.first_segment), 0))


def _restore_control(stream: Stream, row: OutputRow) -> None:
    with making_sense(f"agent.db, of stream {stream.name},"):
        stream.restore(row)


def _from_base(stream: Stream) -> None:
    number, base = newest_base(stream)
    if base is None:
        _begin_new(stream)
        return
    stream.restore_base(number, base["control"])
    for output in stream.outputs:
        _restore_base(output, base, number)


def _restore_base(output: Output, base: dict[str, Any], number: int) -> None:
    output.begin_at(Position(number, 0))
    known = base["outputs"].get(output.name)
    if known is None:
        return
    with making_sense(f"the base file of segment {number}, of {output.name},"):
        _name(output, os.path.basename(str(known["file"])))
        output.restore_base(known, number)
    output.align_columns()


def _name(output: Output, name: str) -> None:
    """Continue in the file of this name, if it can be the output's own.

    Raises:
        ValueError: it is another file of the folder.
    """
    if name != output.file_name and not same_stream(name, output.file_name):
        raise ValueError(name)
    output.use_name(name)


def _begin_new(stream: Stream) -> None:
    """Begin a new stream: existing files are not its own, unless it continues a run in them."""
    plan, rows = stream.opening.continues, 0
    if plan is not None:
        continue_outputs(stream.opening, stream.outputs, plan)
        rows = max((output.encoder.rows for output in stream.outputs), default=0)
    else:
        for output in stream.outputs:
            output.put_aside()
    stream.begin_at(stream.position, rows)
    number = stream.first_segment
    fsync_file(segment_path(stream.folder, number))  # with the opening frame, which identifies the stream
    write_base(stream, number)
    fsync_folder(stream.folder)
    fsync_folder(stream.folder.parent)
