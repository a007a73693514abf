"""When and how a CSV is rewritten with more columns.

A rewrite runs in a worker thread on a copy: the widened temp file is written and synced; then one
transaction stores its generation, rows, columns and size together with the intent temp → final;
then it is renamed. Recovery completes a pending intent. Until then rows wait in the spool.

A rewrite starts at once when the last one is REST_FACTOR times its own duration ago, or when
somebody waits for the rows (flush, end of the run); it takes all columns that the waiting rows
need, so that late keys one at a time cost a few rewrites and not one each.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Executor, Future

from rla_agent.model.states import OutputEvent, OutputState, StreamEvent
from rla_agent.outputs.content import read_chunks
from rla_agent.outputs.csv_table import CsvEncoder, new_columns, widened
from rla_agent.outputs.item_folder import ItemGoneError, temp_name
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output import Output
from rla_agent.pipeline.recovery import Rewritten, finish_intent, replace_file
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase
from rla_client.contract.files import NEW_FLAGS, open_folder

REST_FACTOR = 20.0
SHORTEST_REST_S = 1.0
LONGEST_REST_S = 60.0  # of doubling; a long rewrite may ask for more


class Widener:
    """Rewrites CSV outputs of one volume."""

    def __init__(self, executor: Executor, database: AgentDatabase) -> None:
        self._executor = executor
        self._database = database
        self._running: dict[Output, Future[Rewritten]] = {}

    def serve(self, stream: Stream, output: Output, files: OpenFiles, *, hurry: bool) -> None:
        """Start a rewrite that is due, or finish one that has ended."""
        if output.intent:
            if not output.error:
                finish_intent(stream, output)
            return
        running = self._running.get(output)
        if running is not None:
            if hurry or running.done():
                self._finish(stream, output, files)
            return
        if (
            output.state is OutputState.WIDENING
            and not output.error
            and (hurry or time.monotonic() >= output.next_rewrite)
        ):
            self._start(stream, output, files)
            if hurry and output in self._running:
                self._finish(stream, output, files)

    def forget(self, output: Output, files: OpenFiles) -> None:
        """Nobody waits for an output's file or its rewrite any more."""
        self._running.pop(output, None)
        files.close(output)

    def _start(self, stream: Stream, output: Output, files: OpenFiles) -> None:
        encoder = output.encoder
        if not isinstance(encoder, CsvEncoder):
            return
        columns = list(encoder.columns)
        for records in stream.pending_records(output):
            columns += new_columns(columns, records)
        files.close(output)
        if output.state is OutputState.SUSPECT:
            return
        output.handle(OutputEvent.REWRITE)
        added = len(columns) - len(encoder.columns)
        self._running[output] = self._executor.submit(
            rewrite, output, columns, added, output.size, temp_name(stream.name)
        )

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
        stored = replace_file(stream, output, done, files, self._database)
        if not stored:
            output.handle(OutputEvent.REWRITE_FAILED)
        output.rest_s = rest_after(done.seconds, output.rest_s, time.monotonic() - output.next_rewrite)
        output.next_rewrite = time.monotonic() + output.rest_s


def rest_after(rewrite_s: float, former_rest_s: float, calm_s: float) -> float:
    """How long rows with new columns wait after a rewrite.

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
    old = output.open_file()
    try:
        folder = open_folder(output.root, output.folder)
    except OSError:
        os.close(old)
        raise
    try:
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
    finally:
        os.close(old)
        os.close(folder)
    return Rewritten(temp, total, columns, time.monotonic() - began)
