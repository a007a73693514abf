"""What runs when a job is due: each kind of JOB frame and the sink that does it.

A runner is idempotent, gets checked fields, and tells the three ends apart: done (or nothing to
do), not now (`RetryLaterError`), never (`RlaError`). It runs in a worker thread of the volume.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from rla_agent.jobs import JobContext, JobKind, RetryLaterError
from rla_agent.opening import open_folder, root_is_away, why_parked
from rla_agent.sinks.checkpoint import retain, run_checkpoint
from rla_agent.sinks.figure import RENDER_JOBS, parse_figure, run_figure
from rla_agent.sinks.files import Outcome, parse_code, run_code
from rla_agent.sinks.job_source import Outcome as Checkpointed
from rla_agent.sinks.job_source import release
from rla_agent.sinks.snapshot import run_snapshot
from rla_agent.stream import MARKS_FIELD
from rla_agent.stream_reading import CHECKPOINT_JOB
from rla_client.checkpoint_job import JOB_KIND as CHECKPOINT_KIND
from rla_client.checkpoint_job import CheckpointJob
from rla_client.errors import RlaError
from rla_client.layout import CHECKPOINT, CODE, OTHER_RESULTS, check_relative
from rla_client.snapshot_job import JOB_KIND as SNAPSHOT_KIND
from rla_client.snapshot_job import SnapshotJob
from rla_client.storage import file_mode, make_folder, write_atomic

RESUME_FOLDER = ".resume"  # in the checkpoint item: what exact resume needs beside the `.pt`
STORE_FOLDER = "code/.objects"  # of the database: file contents that many runs share

_log = logging.getLogger("rla_agent.runners")

assert CHECKPOINT_KIND == CHECKPOINT_JOB


def _item_folder(context: JobContext, kind: str) -> Path:
    """The item's folder, checked component by component.

    Raises:
        RetryLaterError: all of the data root is away.
        RlaError: the item is gone, or the run has none of this kind.
    """
    relative = context.opening.folders.get(kind)
    if relative is None:
        message = f"the run has no {kind} folder"
        raise RlaError(message)
    try:
        os.close(open_folder(context.opening.root, relative))
    except OSError as error:
        _wait_for_root(context)
        message = f"the {kind} folder of {context.opening.title} is gone: {error.strerror}"
        raise RlaError(message) from error
    return Path(context.opening.root, relative)


def _wait_for_root(context: JobContext) -> None:
    """Have a job that missed its item wait where the item is only away; its bytes stay where they are.

    Raises:
        RetryLaterError: the data root is not there.
    """
    if not context.removed and root_is_away(context.opening):
        raise RetryLaterError(why_parked(context.opening.root))


def checkpoint(fields: dict[str, Any], context: JobContext) -> None:
    """Write a `.pt`, then what resume needs, then free its memory, then drop superseded ones."""
    marks = fields.pop(MARKS_FIELD, None)
    job = CheckpointJob.decode(fields)
    try:
        folder = _item_folder(context, CHECKPOINT)
    except RlaError:
        release(job, context.blobs)
        raise
    final = folder / job.final_name
    try:
        result = run_checkpoint(job, context.blobs, final)
        if result.outcome is Checkpointed.REMOVED:
            _wait_for_root(context)
        if result.durable and isinstance(marks, dict):
            _keep_marks(folder, job, marks)
    except OSError as error:
        raise RetryLaterError(str(error)) from error
    release(job, context.blobs)
    if not result.durable:
        _log.warning("checkpoint %s: %s: %s", final, result.outcome.value, result.reason)
        return
    for name in retain(job, folder):
        for ending in (".marks.json", ".state"):
            stale = folder / RESUME_FOLDER / f"{Path(name).stem}{ending}"
            stale.unlink(missing_ok=True)


def _keep_marks(folder: Path, job: CheckpointJob, marks: dict[str, Any]) -> None:
    below = folder / RESUME_FOLDER
    make_folder(below)
    name = check_relative(Path(job.final_name).stem)[0]
    write_atomic(below / f"{name}.marks.json", json.dumps(marks).encode(), mode=file_mode(below))


def snapshot(fields: dict[str, Any], context: JobContext) -> None:
    """Write a training's snapshot, then free its memory."""
    job = SnapshotJob.decode(fields)
    try:
        folder = _item_folder(context, job.kind)
    except RlaError:
        release(job, context.blobs)
        raise
    try:
        result = run_snapshot(job, context.blobs, folder)
    except OSError as error:
        raise RetryLaterError(str(error)) from error
    release(job, context.blobs)
    if not result.durable and result.outcome is not Checkpointed.SUPERSEDED:
        _log.warning("snapshot %s: %s: %s", folder / job.names[0], result.outcome.value, result.reason)


def _media(kind: str) -> JobKind:
    def run(fields: dict[str, Any], context: JobContext) -> None:
        job = parse_figure(kind, fields)
        folder = _item_folder(context, OTHER_RESULTS)
        result = run_figure(job, context.blobs, folder, context.opening.python)
        if result.outcome is Outcome.LATER:
            raise RetryLaterError(result.reason)
        if result.outcome is Outcome.FAILED:
            _log.warning("%s %s: %s", kind, result.path, result.reason)

    return JobKind(run, media=True)


def code(fields: dict[str, Any], context: JobContext) -> None:
    """Unpack a code capture into the item, its contents shared over all runs of the database."""
    job = parse_code(fields)
    folder = _item_folder(context, CODE)
    result = run_code(job, context.blobs, folder, Path(context.opening.root, STORE_FOLDER))
    if result.outcome is Outcome.REMOVED:
        _wait_for_root(context)
    if result.outcome is Outcome.LATER:
        raise RetryLaterError(result.reason)
    if result.outcome is Outcome.FAILED:
        _log.warning("code of %s: %s", context.opening.title, result.reason)


KINDS: dict[str, JobKind] = {
    CHECKPOINT_KIND: JobKind(checkpoint, media=False),
    SNAPSHOT_KIND: JobKind(snapshot, media=False),
    CODE: JobKind(code, media=False),
    **{kind: _media(kind) for kind in RENDER_JOBS},
}
