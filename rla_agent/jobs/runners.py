"""Runners of the jobs of each kind.

KINDS names the runner of each kind of JOB frame. A runner is idempotent, gets checked fields, and has three
outcomes: done (or nothing to do), not now (`RetryLaterError`), never (`RlaError`). It runs in a worker thread
of the volume.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rla_agent.jobs.checkpoint_job import MARKS_FIELD, retain, run_checkpoint
from rla_agent.jobs.code_job import parse_code, run_code
from rla_agent.jobs.job_queue import JobContext, JobKind, RetryLaterError
from rla_agent.jobs.job_source import release
from rla_agent.jobs.outcome import SHORTAGES, JobOutcome, JobResult
from rla_agent.jobs.render_job import RENDER_JOBS, parse_figure, run_figure
from rla_agent.jobs.snapshot_job import run_snapshot
from rla_agent.outputs.data_root_presence import root_is_away, why_parked
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND, CheckpointJob
from rla_client.contract.job.snapshot_job import SNAPSHOT_KIND, SnapshotJob
from rla_client.contract.layout import CHECKPOINT, CODE, OTHER_RESULTS, RESUME_FOLDER
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import check_relative

_NEVER = frozenset((errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
_UNDONE = frozenset((JobOutcome.LOST, JobOutcome.REFUSED, JobOutcome.FAILED))
_log = logging.getLogger("rla_agent.jobs.runners")


@contextmanager
def _held_item(
    context: JobContext, kind: str, job: CheckpointJob | SnapshotJob | None = None
) -> Iterator[Path]:
    """Descriptor of the item's folder, so that the job stays in it, whatever takes its name meanwhile.

    Raises:
        RetryLaterError: the data root is missing, or the folder cannot be opened just now.
        RlaError: the item is gone, or the run has none of this kind; `job`'s bytes are freed then.
    """
    try:
        folder = _open_item(context, kind)
    except RlaError:
        if job is not None:
            release(job, context.blobs)
        raise
    with closing_fd(folder):
        yield Path(f"/proc/self/fd/{folder}")


def _open_item(context: JobContext, kind: str) -> int:
    relative = context.opening.folders.get(kind)
    if relative is None:
        raise RlaError(f"the run has no {kind} folder")
    try:
        return open_folder(context.opening.root, relative)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise RetryLaterError(str(error)) from error
        _wait_for_root(context)
        raise RlaError(f"the {kind} folder of {context.opening.title} is gone: {error.strerror}") from error


def _wait_for_root(context: JobContext) -> None:
    """Postpone a job that missed its item where only the data root is missing; its bytes stay.

    Raises:
        RetryLaterError: the data root is missing.
    """
    if not context.removed and root_is_away(context.opening):
        raise RetryLaterError(why_parked(context.opening.root))


def _raise_undone(result: JobResult) -> None:
    """Retry an undone job, or drop it, which a flush reports.

    Raises:
        RetryLaterError: it may be done later.
        RlaError: it cannot be done.
    """
    if result.outcome is JobOutcome.LATER:
        raise RetryLaterError(result.reason)
    if result.outcome in _UNDONE:
        raise RlaError(f"{result.outcome.value}: {result.reason}")  # the caller's message names the file


def checkpoint(fields: dict[str, Any], context: JobContext) -> None:
    """Write a `.pt`, then the resume state, then free its memory, then drop superseded ones."""
    marks = fields.pop(MARKS_FIELD, None)
    job = CheckpointJob.decode(fields)
    with _held_item(context, CHECKPOINT, job) as folder:
        try:
            result = run_checkpoint(job, context.blobs, folder / job.final_name)
            if result.outcome is JobOutcome.REMOVED:
                _wait_for_root(context)
            if result.durable and isinstance(marks, dict):
                _keep_marks(folder, job, marks)
        except OSError as error:
            _retry_or_give_up(job, context, error)
        release(job, context.blobs)
        if result.durable:
            retain(job, folder)
            return
    _raise_undone(result)


def _retry_or_give_up(job: CheckpointJob | SnapshotJob, context: JobContext, error: OSError) -> NoReturn:
    """End a failed attempt: permanently where a folder or a link has the name, or the job would hang."""
    if error.errno not in _NEVER:
        raise RetryLaterError(str(error)) from error
    release(job, context.blobs)
    raise RlaError(f"something else has its place: {error.strerror}") from error


def _keep_marks(folder: Path, job: CheckpointJob, marks: dict[str, Any]) -> None:
    name = check_relative(Path(job.final_name).stem)[0]
    try:
        with held_folder(folder, RESUME_FOLDER, create=True) as below:
            write_atomic(below / f"{name}.marks.json", json.dumps(marks).encode())
    except (NotADirectoryError, IsADirectoryError) as error:
        _log.warning("%s: no exact resume from it: %s", job.final_name, error.strerror)


def snapshot(fields: dict[str, Any], context: JobContext) -> None:
    """Write a training's snapshot, then free its memory."""
    job = SnapshotJob.decode(fields)
    with _held_item(context, job.kind, job) as folder:
        try:
            result = run_snapshot(job, context.blobs, folder)
        except OSError as error:
            _retry_or_give_up(job, context, error)
    release(job, context.blobs)
    _raise_undone(result)


def media(kind: str, fields: dict[str, Any], context: JobContext) -> None:
    """Render a figure, an image or a video into the run's results."""
    job = parse_figure(kind, fields)
    if context.done_before(job.blob):
        return
    with _held_item(context, OTHER_RESULTS) as folder:
        result = run_figure(job, context.blobs, folder, context.opening.python)
    _raise_undone(result)


def code(fields: dict[str, Any], context: JobContext) -> None:
    """Unpack a code capture into the item, its contents shared over all runs of the database."""
    blob = parse_code(fields)
    if context.done_before(blob):
        return
    with _held_item(context, CODE) as folder:
        result = run_code(blob, context.blobs, folder, context.opening.root)
    if result.outcome is JobOutcome.REMOVED:
        _wait_for_root(context)
    _raise_undone(result)


KINDS: dict[str, JobKind] = {
    CHECKPOINT_KIND: JobKind(checkpoint, media=False),
    SNAPSHOT_KIND: JobKind(snapshot, media=False),
    CODE: JobKind(code, media=False),
    **{kind: JobKind(partial(media, kind), media=True) for kind in RENDER_JOBS},
}
