"""What runs when a job is due: each kind of JOB frame and the sink that does it.

A runner is idempotent, gets checked fields, and tells the three ends apart: done (or nothing to
do), not now (`RetryLaterError`), never (`RlaError`). It runs in a worker thread of the volume.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from rla_agent.jobs.checkpoint import retain, run_checkpoint, run_snapshot
from rla_agent.jobs.code import Outcome, parse_code, run_code
from rla_agent.jobs.figure import RENDER_JOBS, parse_figure, run_figure
from rla_agent.jobs.queue import MARKS_FIELD, JobContext, JobKind, RetryLaterError
from rla_agent.jobs.source import SHORTAGES, release
from rla_agent.jobs.source import Outcome as Checkpointed
from rla_agent.outputs.item_folder import root_is_away, why_parked
from rla_client.contract.errors import RlaError
from rla_client.contract.files import held_folder, open_folder, write_atomic
from rla_client.contract.jobs import CHECKPOINT_KIND, SNAPSHOT_KIND, CheckpointJob, SnapshotJob
from rla_client.contract.layout import CHECKPOINT, CODE, OTHER_RESULTS, RESUME_FOLDER, check_relative

_NEVER = frozenset((errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))

_UNDONE = frozenset((Checkpointed.LOST, Checkpointed.REFUSED))
_log = logging.getLogger("rla_agent.jobs.runners")


@contextmanager
def _item_folder(context: JobContext, kind: str) -> Iterator[Path]:
    """The item's folder, held: whatever takes its name meanwhile, the job stays in this one.

    Raises:
        RetryLaterError: all of the data root is away, or the folder cannot be opened just now.
        RlaError: the item is gone, or the run has none of this kind.
    """
    relative = context.opening.folders.get(kind)
    if relative is None:
        message = f"the run has no {kind} folder"
        raise RlaError(message)
    try:
        folder = open_folder(context.opening.root, relative)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise RetryLaterError(str(error)) from error
        _wait_for_root(context)
        message = f"the {kind} folder of {context.opening.title} is gone: {error.strerror}"
        raise RlaError(message) from error
    try:
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


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
    with ExitStack() as held:
        try:
            folder = held.enter_context(_item_folder(context, CHECKPOINT))
        except RlaError:
            release(job, context.blobs)
            raise
        try:
            result = run_checkpoint(job, context.blobs, folder / job.final_name)
            if result.outcome is Checkpointed.REMOVED:
                _wait_for_root(context)
            if result.durable and isinstance(marks, dict):
                _keep_marks(folder, job, marks)
        except OSError as error:
            _retry_or_give_up(job, context, error)
        release(job, context.blobs)
        if result.durable:
            _drop_superseded(job, folder)
            return
    if result.outcome in _UNDONE:
        raise _failed(context, job.final_name, result.outcome.value, result.reason)


def _retry_or_give_up(job: CheckpointJob | SnapshotJob, context: JobContext, error: OSError) -> NoReturn:
    """End an attempt that failed: for good where a folder or a link has the name, or the job would hang."""
    if error.errno not in _NEVER:
        raise RetryLaterError(str(error)) from error
    release(job, context.blobs)
    message = f"something else has its place: {error.strerror}"
    raise RlaError(message) from error


def _drop_superseded(job: CheckpointJob, folder: Path) -> None:
    with ExitStack() as held:
        below = None
        for name in retain(job, folder):
            with suppress(OSError):
                below = below or held.enter_context(held_folder(folder, RESUME_FOLDER))
                for ending in (".marks.json", ".state"):
                    (below / f"{Path(name).stem}{ending}").unlink(missing_ok=True)


def _failed(context: JobContext, name: str, how: str, why: str) -> RlaError:
    """What ends a job that cannot be done; a flush tells of it."""
    return RlaError(f"{name} of {context.opening.title}: {how}: {why}")


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
    with ExitStack() as held:
        try:
            folder = held.enter_context(_item_folder(context, job.kind))
        except RlaError:
            release(job, context.blobs)
            raise
        try:
            result = run_snapshot(job, context.blobs, folder)
        except OSError as error:
            _retry_or_give_up(job, context, error)
    release(job, context.blobs)
    if result.outcome in _UNDONE:
        raise _failed(context, job.names[0], result.outcome.value, result.reason)


def _media(kind: str) -> JobKind:
    def run(fields: dict[str, Any], context: JobContext) -> None:
        job = parse_figure(kind, fields)
        if context.done_before(job.blob):
            return
        with _item_folder(context, OTHER_RESULTS) as folder:
            result = run_figure(job, context.blobs, folder, context.opening.python)
        if result.outcome is Outcome.LATER:
            raise RetryLaterError(result.reason)
        if result.outcome is Outcome.FAILED:
            raise _failed(context, "/".join(job.name), "failed", result.reason)

    return JobKind(run, media=True)


def code(fields: dict[str, Any], context: JobContext) -> None:
    """Unpack a code capture into the item, its contents shared over all runs of the database."""
    job = parse_code(fields)
    if context.done_before(job.blob):
        return
    with _item_folder(context, CODE) as folder:
        result = run_code(job, context.blobs, folder, context.opening.root)
    if result.outcome is Outcome.REMOVED:
        _wait_for_root(context)
    if result.outcome is Outcome.LATER:
        raise RetryLaterError(result.reason)
    if result.outcome is Outcome.FAILED:
        raise _failed(context, "code", "failed", result.reason)


KINDS: dict[str, JobKind] = {
    CHECKPOINT_KIND: JobKind(checkpoint, media=False),
    SNAPSHOT_KIND: JobKind(snapshot, media=False),
    CODE: JobKind(code, media=False),
    **{kind: _media(kind) for kind in RENDER_JOBS},
}
