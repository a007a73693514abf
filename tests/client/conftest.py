"""A run whose jobs are done on demand, for the tests of figures, images and videos."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rla_agent.sinks.figure import FigureResult, parse_figure, run_figure
from rla_agent.sinks.media import sweep_slots
from rla_client import media_jobs
from rla_client.clock import time_step_holder
from rla_client.config import AgentConfig
from rla_client.outbox import Outbox
from rla_client.places import Places
from rla_client.protocol import FrameKind, iter_frames, unpack
from rla_client.recorders import RecordingTarget, bind
from rla_client.render import FigureUnpickler


@dataclass
class RecordingRun:
    """A run as the manager opens it, and the agent's part on demand."""

    results: Path
    outbox: Outbox
    warnings: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """What lies in the results folder."""
        return sorted(
            str(path.relative_to(self.results)) for path in self.results.rglob("*") if path.is_file()
        )

    @property
    def jobs(self) -> list[tuple[str, dict[str, Any]]]:
        assert self.outbox.stream_folder is not None
        found = []
        for segment in sorted(self.outbox.stream_folder.glob("*.seg")):
            frames = iter_frames(segment.read_bytes())
            found += [tuple(unpack(frame.payload)) for frame in frames if frame.kind == FrameKind.JOB]
        return found

    def work(self) -> list[FigureResult]:
        """Do all jobs as the agent does."""
        blobs = self.outbox.blobs_folder
        assert blobs is not None
        results = []
        for kind, fields in self.jobs:
            results.append(run_figure(parse_figure(kind, fields), blobs, self.results, sys.executable))
        return results

    def figure(self) -> Any:
        """The only figure in the spool."""
        assert self.outbox.blobs_folder is not None
        ((_, fields),) = self.jobs
        with (self.outbox.blobs_folder / fields["blob"]).open("rb") as blob:
            return FigureUnpickler(blob).load()


@pytest.fixture(name="run")
def run_fixture(places: Places, tmp_path: Path) -> Iterator[RecordingRun]:
    opened = RecordingRun(
        tmp_path / "results", Outbox(places, {"pid": os.getpid()}, AgentConfig(autostart=False))
    )
    opened.results.mkdir()
    media_jobs._state.expects_videos = False  # each test says itself what memory is made ready
    bind(RecordingTarget(opened.results, opened.outbox, opened.warnings.append))
    time_step_holder.set_time(7)
    yield opened
    bind(None)
    time_step_holder.set_time(0)
    stream = opened.outbox.stream_folder
    opened.outbox.release()
    if stream is not None:
        sweep_slots(stream.name)
