"""Runs whose jobs the tests do themselves, of figures, images, videos, checkpoints; old databases."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.legacy_database import named_database, write_look_alike
from support.spooled import bare_opening, stop_autostart

from rla_agent.jobs.outcome import JobResult as FigureResult
from rla_agent.jobs.render_job import parse_figure, run_figure
from rla_agent.jobs.shm_cleanup import sweep_arenas
from rla_client import logger
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.job.arena_layout import ARENA_FOLDER, spool_key
from rla_client.contract.layout import SINKS
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.media import recording_target
from rla_client.media.recording_target import RecordingTarget, bind
from rla_client.media.render import decorate
from rla_client.stream import run_scope
from rla_client.stream.clock import time_step_holder
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from rla_client.checkpoint.saver import CheckpointSaver


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
        """The only figure in the spool, decorated as the render process does it."""
        assert self.outbox.blobs_folder is not None
        ((_, fields),) = self.jobs
        with (self.outbox.blobs_folder / fields["blob"]).open("rb") as blob:
            payload = pickle.load(blob)
        if payload["decoration"]:
            decorate(payload["options"], **payload["decoration"])
        return payload


@pytest.fixture(name="run")
def run_fixture(places: Places, tmp_path: Path) -> Iterator[RecordingRun]:
    opened = RecordingRun(tmp_path / "results", Outbox(places, bare_opening(), AgentConfig(autostart=False)))
    opened.results.mkdir()
    recording_target._expects_videos = False  # each test says itself what memory is made ready
    bind(RecordingTarget(opened.results, opened.outbox, opened.warnings.append))
    time_step_holder.set_time(7)
    yield opened
    bind(None)
    time_step_holder.set_time(0)
    opened.outbox.release()
    sweep_arenas(places.spool, lambda _: ())


@pytest.fixture(scope="session")
def legacy_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Databases of the original, where RLA_LEGACY_DATA names some, else a look-alike; only to read."""
    named = named_database()
    if named is not None:
        return named
    made = tmp_path_factory.mktemp("legacy")
    write_look_alike(made)
    return made


@pytest.fixture
def legacy(legacy_source: Path, tmp_path: Path) -> Path:
    """A writable copy of them."""
    target = tmp_path / "legacy"
    shutil.copytree(legacy_source, target, copy_function=shutil.copyfile)
    for place, _, _ in os.walk(target):
        os.chmod(place, 0o755)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's checkpoint folder."""
    made = tmp_path / "checkpoint"
    made.mkdir()
    return made


@pytest.fixture
def outbox(places: Places, wait_until: Callable[..., Any]) -> Iterator[Outbox]:
    """Of a run whose agent is not started."""
    made = Outbox(places, bare_opening(), AgentConfig(autostart=False))
    yield made
    made.close("finished", "")
    wait_until(lambda: not any(thread.name == "rla-blob-sync" for thread in threading.enumerate()), 30)


@pytest.fixture
def saver(
    outbox: Outbox, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CheckpointSaver]:
    """With an arena of two slots of 9 MiB, a moment after new_saver."""
    from rla_client.checkpoint.saver import CheckpointSaver
    from rla_client.stream import arena

    monkeypatch.setattr(arena, "SMALL_ARENA_BYTES", 0)
    made = CheckpointSaver(outbox, folder, max_to_keep=2, run="own")
    assert made._pool is not None
    assert made._pool.wait_prepared(30)
    yield made
    made.close()
    key = spool_key(places.spool)
    for name in os.listdir(ARENA_FOLDER):
        if f"-{key}-" in name:
            os.unlink(os.path.join(ARENA_FOLDER, name))


@pytest.fixture
def fresh_manager(places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """`exp_manager` as after import, in a project folder `code`; no agent is started."""
    from rla_client.manager import exp_manager

    stop_autostart(places)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("pass\n")
    logging.getLogger("rla_client").disabled = True
    run_scope.reset()
    yield
    logging.getLogger("rla_client").disabled = False
    exp_manager.close()
    logger.reset()
    logger.get_current().forget_pending()
    run_scope.reset()
    os.environ.pop("RLA_RUN", None)


@pytest.fixture
def plain_logger(places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The logger as after import; no agent is started."""
    stop_autostart(places)
    for name in ("OPENAI_LOGDIR", "OPENAI_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    time_step_holder.set_time(0)
    logging.getLogger("rla_client").disabled = True
    yield
    logging.getLogger("rla_client").disabled = False
    logger.reset()
    logger.get_current().forget_pending()
    time_step_holder.set_time(0)
    os.environ.pop("RLA_RUN", None)


@pytest.fixture
def log_folder(plain_logger: None, tmp_path: Path) -> Path:
    """The logger writes here, to all outputs."""
    logger.configure(tmp_path / "logs", SINKS)
    return tmp_path / "logs"
