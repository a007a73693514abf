"""Environment of a captured command.

`PYTHONPATH` begins with the folder of a `sitecustomize` that starts the capture in each Python process
(`rla_client/capture/loader`). The command line stays as it is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.capture.notes import NOTES_VARIABLE, outcome
from rla_client.contract.capture.parts import CAPTURE_VARIABLE, TABLE_VARIABLE, TRACK_VARIABLE

CHECK_VARIABLE = "RLA_CAPTURE_CHECK"  # a process that would be captured ends at once
MAX_NOTES_READ = 1 << 21


@dataclass(frozen=True, slots=True)
class CaptureWish:
    """Settings of a command's capture, as text.

    Attributes:
        parts: see `parse_parts`.
        table: of its runs; empty: as they are named.
        track: hyper-parameters in their index, separated by commas; empty: those on the command line.
    """

    parts: str
    table: str = ""
    track: str = ""


class CaptureNotes:
    """The file of captured processes' notes."""

    def __init__(self) -> None:
        file, path = tempfile.mkstemp(prefix="rla-capture-")
        os.close(file)
        self.path = Path(path)

    def take(self) -> str:
        """Read the notes and delete the file.

        Raises:
            OSError: it cannot be read.
        """
        with self.path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_NOTES_READ)
        self.path.unlink()
        return text

    def outcome(self) -> tuple[str, str]:
        """Where the runs are, and why there is none (one of them is empty). Deletes the file."""
        try:
            return outcome(self.take())
        except OSError as error:
            return "", f"what was captured is not known, the notes of its processes cannot be read: {error}"


def loader_folder() -> Path:
    """The folder of the `sitecustomize`."""
    return Path(__file__).parents[2] / "capture" / "loader"


def captured_environment(environment: Mapping[str, str], wish: CaptureWish, notes: Path) -> dict[str, str]:
    """The environment of a captured command.

    Args:
        environment: without the capture.
        wish: what to capture.
        notes: the file for its processes.
    """
    ours = str(loader_folder())
    places = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place != ours]
    given = {TABLE_VARIABLE: wish.table, TRACK_VARIABLE: wish.track}
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([ours, *places] if any(places) else [ours]),
        CAPTURE_VARIABLE: wish.parts,
        NOTES_VARIABLE: str(notes),
        **{name: value for name, value in given.items() if value},
    }
