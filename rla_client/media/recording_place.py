"""The file of a recording.

`find_place` turns a user's name into a path below the run's results folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.safe_names import check_relative
from rla_client.media.job_outbox import JobOutbox
from rla_client.media.recording_target import makes_nothing, recording_state
from rla_client.stream.clock import time_step_holder


@dataclass(frozen=True, slots=True)
class RecordingPlace:
    """One file to make.

    Attributes:
        folder: to which `name` is relative.
        name: relative path with extension.
        format: of the content.
        cover: replace an existing file.
        outbox: stream for the job; None: the caller makes the file.
        unmade: no file is made at all.
    """

    folder: Path
    name: str
    format: str
    cover: bool
    outbox: JobOutbox | None
    unmade: bool = False

    @property
    def path(self) -> Path:
        """The final path."""
        return self.folder / self.name

    @property
    def stays(self) -> bool:
        """Whether nothing is to be made: an existing file is not replaced, or no files are made."""
        return self.unmade or (not self.cover and self.path.exists())


def find_place(
    name: str | os.PathLike[str],
    formats: frozenset[str],
    *,
    cover: bool,
    add_timestamp: bool,
    results_dir: str | os.PathLike[str] | None,
    format_: str | None = None,
) -> RecordingPlace:
    """Determine the path and the format of a file.

    Args:
        name: below the results folder; parts before the last are folders.
        formats: extensions that can be encoded; the default is mp4 if it is among them, else png.
        cover: replace a file with an explicit extension.
        add_timestamp: put the time-step before the last part.
        results_dir: a folder other than the run's results folder.
        format_: the format, regardless of the name's extension.

    Raises:
        ArgumentError: the name or format is invalid.
        NotConfiguredError: no run is open and no results_dir is given.
    """
    parts = list(check_relative(name_text(name), what="name"))
    extension = os.path.splitext(parts[-1])[1][1:].lower()
    explicit = extension in formats
    chosen = (format_ or (extension if explicit else "mp4" if "mp4" in formats else "png")).lower()
    if chosen not in formats:
        raise ArgumentError(f"format {chosen!r} is none of {', '.join(sorted(formats))}")
    if not explicit:
        parts[-1] += f".{chosen}"
    if add_timestamp:
        parts[-1] = f"{time_step_holder.get_time()}-{parts[-1]}"
    folder, outbox, above = _folder_of(results_dir)
    full = "/".join([*above, *parts])
    check_relative(full, what="name")
    return RecordingPlace(folder, full, chosen, cover or not explicit, outbox, makes_nothing(results_dir))


def _folder_of(results_dir: str | os.PathLike[str] | None) -> tuple[Path, JobOutbox | None, tuple[str, ...]]:
    """The folder to which names are relative, its stream, and parts to put before a name.

    Raises:
        NotConfiguredError: no run is open and no results_dir is given.
    """
    target = recording_state().target
    if results_dir is None:
        if target is None:
            raise NotConfiguredError("no run is open: call log_files_gen() first, or give results_dir")
        if target.results_dir is None:
            return Path(target.temporary() if target.temporary is not None else "."), None, ()
        return target.results_dir, target.outbox, target.below
    folder = Path(os.path.abspath(results_dir))
    own = None if target is None else target.results_dir
    if target is not None and own is not None and folder.is_relative_to(own):
        return own, target.outbox, folder.relative_to(own).parts
    return folder, None, ()


def name_text(name: object) -> str:
    """A user's file name as text.

    Raises:
        ArgumentError: the name is neither text nor a path.
    """
    if isinstance(name, (str, os.PathLike)):
        text = os.fspath(name)
        if isinstance(text, str):
            return text
    raise ArgumentError(f"name must be text, got {type(name).__name__}")
