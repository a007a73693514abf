"""Rewrites of CSV outputs that need more columns.

A CSV is rewritten beside itself, in five steps; rows wait in the spool meanwhile:

1. The columns that the waiting rows need are collected, and the output takes no rows any more.
2. A worker thread writes the widened copy as a temp file, and syncs it.
3. One transaction stores generation, rows, columns and size of the copy with the intent: temp → final.
4. The temp file is renamed, and the folder synced.
5. The next commit stores the output without the intent.

After a kill before 3 the old file counts, and recovery removes the temp file; after 3 the new one does, and
recovery renames it, which may have been done.

A rewrite starts at once when the last one is REST_FACTOR times its own duration ago, or when somebody waits
for the rows (flush, end of the run). It takes all columns that the waiting rows need, so that late keys one
at a time cost a few rewrites and not one each.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from rla_agent.model.stream_states import OutputEvent, OutputState, StreamEvent
from rla_agent.outputs.csv_encoder import CsvEncoder, new_columns, widened
from rla_agent.outputs.file_content import read_chunks
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.temp_files import temp_name
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS
from rla_client.contract.filesystem.safe_paths import ItemGoneError, held_folder, open_folder
from rla_client.contract.process.descriptors import closing_fd

REST_FACTOR = 20.0
SHORTEST_REST_S = 1.0
SCAN_S = 0.1  # for collecting the columns of waiting rows; other streams wait meanwhile
LONGEST_REST_S = 60.0  # of doubling; a long rewrite may ask for more


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A finished temp file."""

    temp: str
    size: int
    columns: list[str]
    seconds: float


class Widener:
    """Rewrites CSV outputs of one volume."""

    def __init__(self, executor: Executor, database: AgentDatabase, ended: Callable[[str], object]) -> None:
        self._executor = executor
        self._database = database
        self._ended = ended  # called from any thread, with the stream, when a rewrite is to be finished
        self._running: dict[Output, Future[Rewritten]] = {}

    def serve(self, stream: Stream, output: Output, files: OpenFiles, *, hurry: bool) -> None:
        """Start a rewrite that is due, or finish one that has ended; waits for none.

        `hurry` leaves out the rest after the last one.
        """
        if output.intent:
            if not output.error:
                finish_intent(stream, output)
            return
        running = self._running.get(output)
        if running is not None:
            if running.done():
                self._finish(stream, output, files)
            return
        if (
            output.state is OutputState.WIDENING
            and not output.error
            and (hurry or time.monotonic() >= output.rest.until)
        ):
            self._start(stream, output, files)

    def forget(self, output: Output, files: OpenFiles) -> None:
        """Drop an output whose file or rewrite nobody waits for any more."""
        self._running.pop(output, None)
        files.close(output)

    def _start(self, stream: Stream, output: Output, files: OpenFiles) -> None:
        encoder = output.encoder
        if not isinstance(encoder, CsvEncoder):
            return
        # 1. the columns of the waiting rows; the file takes none of them in between
        columns, until = list(encoder.columns), time.monotonic() + SCAN_S
        for records in stream.pending_records(output):
            columns += new_columns(columns, records)
            if time.monotonic() > until:
                break  # what comes later may cost one more rewrite
        files.close(output)
        if output.state is OutputState.SUSPECT:
            return
        output.handle(OutputEvent.REWRITE)
        # 2. the copy, in a worker thread
        added = len(columns) - len(encoder.columns)
        begun = self._executor.submit(rewrite, output, columns, added, output.size, temp_name(stream.name))
        self._running[output] = begun
        begun.add_done_callback(lambda _: self._ended(stream.name))

    def _finish(self, stream: Stream, output: Output, files: OpenFiles) -> None:
        future = self._running.pop(output)
        try:
            done = future.result()
        except ItemGoneError:
            output.handle(OutputEvent.REWRITE_FAILED)
            stream.handle(StreamEvent.MISSED)
            return
        except FileNotFoundError:
            output.handle(OutputEvent.REWRITE_FAILED)
            if not os.path.lexists(output.path):
                output.begin_again(files)
                stream.touch()
            return
        except OSError as error:
            output.handle(OutputEvent.REWRITE_FAILED)
            output.fail(error)
            return
        self._replace(stream, output, done, files)
        now = time.monotonic()
        output.rest_for(rest_after(done.seconds, output.rest.seconds, now - output.rest.until), now)

    def _replace(self, stream: Stream, output: Output, rewritten: Rewritten, files: OpenFiles) -> None:
        """Store that a finished temp file is the output's content from now on, then give it the name.

        When that cannot be stored the old file stays and the temp file goes.
        """
        # 3. one transaction: the temp file is the content, and is to get the name
        row = output.rewritten_row(rewritten.columns, rewritten.size, rewritten.temp)
        try:
            self._database.commit(CommitChanges(outputs=[(stream.name, row)]))
        except sqlite3.OperationalError as error:
            with suppress(OSError), held_folder(output.root, output.folder) as folder:
                (folder / rewritten.temp).unlink()
            output.refuse_rewrite(OSError(0, str(error)))
            return
        output.take_rewrite(row)
        files.close(output)
        finish_intent(stream, output)


def rest_after(rewrite_s: float, former_rest_s: float, calm_s: float) -> float:
    """Seconds that rows with new columns wait after a rewrite.

    While new columns keep coming the rest doubles, so that the bytes of all rewrites together stay
    a small multiple of the file.

    Args:
        rewrite_s: what the rewrite took.
        former_rest_s: the rest before it.
        calm_s: how long ago that rest had ended.
    """
    growing = 2.0 * former_rest_s if calm_s < former_rest_s else 0.0
    return max(REST_FACTOR * rewrite_s, min(growing, LONGEST_REST_S), SHORTEST_REST_S)


def rewrite(output: Output, columns: list[str], added: int, size: int, temp: str) -> Rewritten:
    """Write the widened copy of an output's first `size` bytes beside it, as `temp`, durably.

    Raises:
        ItemGoneError: the item's folder is not there.
        OSError: it could not be written; no temp file is left.
    """
    began = time.monotonic()
    with closing_fd(output.open_file()) as old, closing_fd(open_folder(output.root, output.folder)) as folder:
        new = os.open(temp, NEW_FLAGS, os.fstat(old).st_mode & 0o777, dir_fd=folder)
        try:
            with open(new, "wb") as file:
                file.writelines(widened(read_chunks(old, size), columns, added))
                file.flush()
                os.fsync(file.fileno())
                total = file.tell()
        except OSError:
            os.unlink(temp, dir_fd=folder)
            raise
    return Rewritten(temp, total, columns, time.monotonic() - began)


def finish_intent(stream: Stream, output: Output) -> None:
    """Give a stored temp file its name; on failure the output waits, and this is called again."""
    try:
        # 4. the temp file gets its name
        output.take_name(output.intent)
    except (FileNotFoundError, NotADirectoryError):
        stream.handle(StreamEvent.MISSED)
    except OSError as error:
        output.fail(error)
    else:
        output.handle(OutputEvent.RENAMED)
        output.touch()
        stream.touch()  # 5. the next commit clears the intent
