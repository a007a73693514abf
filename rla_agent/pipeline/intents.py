"""A finished temp file takes an output's name, whatever happens in between.

First one transaction stores what the output is from now on, together with the temp file's name
(the intent); then the rename and a sync of the folder; the next commit clears the intent. After a
crash in between, recovery renames.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass

from rla_agent.model.output_states import OutputEvent
from rla_agent.model.stream_states import StreamEvent
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output import Output
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase, Changes
from rla_client.contract.files import held_folder, open_folder


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
