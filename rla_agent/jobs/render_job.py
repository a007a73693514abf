"""Render jobs of media.

The agent never looks into the blob of a picture. It opens the blob (or a shared-memory slot) and a hidden
temp file beside the final name and starts `rla_client/media/render.py` with these two as standard input and
output: the interpreter of the run's opening frame, if nobody else can exchange it, a short environment, its
own session. Then fsync, the final name, fsync of the folder. A file that is there stays unless the job
covers: the name is taken by link(2), which never replaces. Jobs for one name must run in the order they
were sent (`FigureJob.name` is the key).

    job kind "figure": name, format, cover, blob
    job kind "image":  name, format, cover, blob | slot, shape, dtype, caption
    job kind "video":  name, format, cover, blob | slot, shape, dtype, fps
    job kind "table":  name, format, cover, blob
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_agent.jobs.job_source import blob_name, free_slot, open_blob, opened_slot
from rla_agent.jobs.job_temp import fresh_temp
from rla_agent.jobs.outcome import JobOutcome, JobResult, attempt_in
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import claim_name
from rla_client.contract.filesystem.modes import open_within
from rla_client.contract.filesystem.safe_paths import is_there, walk
from rla_client.contract.filesystem.trusted_paths import program_problem
from rla_client.contract.job.arena_layout import SlotRef
from rla_client.contract.job.media_job import (
    FORMATS,
    JOB_FIGURE,
    JOB_IMAGE,
    JOB_TABLE,
    JOB_VIDEO,
    MAX_BLOB_BYTES,
    MAX_CAPTION_CHARS,
    MAX_FPS,
    MAX_FRAMES,
    MAX_RAW_BYTES,
    MAX_SIDE,
)
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import check_relative
from rla_client.contract.spool import protocol

RENDER_JOBS = (JOB_FIGURE, JOB_IMAGE, JOB_VIDEO, JOB_TABLE)
_OF_PIXELS = frozenset({JOB_IMAGE, JOB_VIDEO})
# on busy cores a niced process waits minutes for the seconds it computes; CPU time has a limit of its own
TIMEOUT_S = dict.fromkeys(RENDER_JOBS, 900.0)
MAX_REASON_BYTES = 2000
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8,
    "int64": 8, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
LIBRARIES = {JOB_FIGURE: "matplotlib", JOB_IMAGE: "PIL", JOB_VIDEO: "numpy", JOB_TABLE: "msgpack"}
NO_LIBRARY = (
    "the {0} is not rendered yet: its run's own interpreter is not used here, and rla-agent's has no {1}; "
    "install {1} beside rla-agent, then drain again"
)
PASSED_ON = (
    "LANG", "LC_ALL", "LC_CTYPE", "MPLCONFIGDIR", "PATH", "TMPDIR", "TZ", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
# by path: the agent never imports it
RENDER_SCRIPT = Path(protocol.__file__).parents[2] / "media" / "render.py"


@dataclass(frozen=True, slots=True)
class RawArray:
    """Shape and type of the raw bytes of an image (one frame) or video."""

    shape: tuple[int, int, int, int]  # T, H, W, C
    dtype: str
    fps: float

    @property
    def total_bytes(self) -> int:
        """Size of the array."""
        count, height, width, channels = self.shape
        return count * height * width * channels * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class FigureJob:
    """A checked job of one of RENDER_JOBS; its bytes are in a blob or in a slot."""

    kind: str
    name: tuple[str, ...]  # path below the results folder, parts
    format: str  # one of FORMATS[kind]
    cover: bool  # a file of this name is replaced
    blob: str | None  # name of a blob of the stream
    slot: SlotRef | None
    array: RawArray | None  # of the raw bytes; None for a figure or table
    caption: str = ""  # of an image


def parse_figure(kind: str, fields: object) -> FigureJob:
    """Check the fields of a job frame.

    Raises:
        RemoteProtocolError: they are not what a client writes.
        UnsafeNameError: the file's name would leave the results folder.
    """
    if kind not in RENDER_JOBS or not isinstance(fields, dict):
        raise RemoteProtocolError(f"no job of ours: {kind!r:.50}")
    name, format_, cover = fields.get("name"), fields.get("format"), fields.get("cover")
    if not isinstance(name, str) or not isinstance(format_, str) or not isinstance(cover, bool):
        raise RemoteProtocolError(f"a {kind} job without name, format or cover")
    if format_ not in FORMATS[kind]:
        raise RemoteProtocolError(f"a {kind} cannot be encoded as {format_!r:.50}")
    slot = fields.get("slot")
    return FigureJob(
        kind,
        check_relative(name, what=kind),
        format_,
        cover,
        None if slot is not None else blob_name(fields.get("blob")),
        _parse_slot(slot) if slot is not None and kind in _OF_PIXELS else None,
        _parse_array(fields) if kind in _OF_PIXELS else None,
        str(fields.get("caption") or "")[:MAX_CAPTION_CHARS] if kind == JOB_IMAGE else "",
    )


def _parse_array(fields: dict[Any, Any]) -> RawArray:
    """Check shape, type and frame rate of a job."""
    match fields.get("shape"):
        case [int() as count, int() as height, int() as width, int() as channels] if channels in (1, 3, 4):
            shape = (count, height, width, channels)
        case _:
            raise RemoteProtocolError("no shape of a picture or video")
    dtype = fields.get("dtype")
    fps = fields.get("fps", 1.0)
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise RemoteProtocolError(f"no type of pixels: {dtype!r:.50}")
    if not isinstance(fps, (int, float)) or isinstance(fps, bool) or not 0 < fps <= MAX_FPS:
        raise RemoteProtocolError(f"no frame rate: {fps!r:.50}")
    if not (1 <= count <= MAX_FRAMES and 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise RemoteProtocolError(f"a shape of {shape} is over the limits")
    array = RawArray(shape, dtype, float(fps))
    if array.total_bytes > MAX_RAW_BYTES:
        raise RemoteProtocolError(f"a raw array of {array.total_bytes} bytes is over the limit")
    return array


def _parse_slot(value: object) -> SlotRef:
    match value:
        case [str() as arena, int() as slot, int() as number]:
            return SlotRef(arena, slot, number)
    raise RemoteProtocolError("no reference to a slot of shared memory")


def run_figure(job: FigureJob, blobs: Path, final_dir: Path, python: str) -> JobResult:
    """Make the file of one job; no error is raised for what a client, a figure or the disk did.

    Args:
        job: from `parse_figure`.
        blobs: the stream's blob folder.
        final_dir: the run's results folder, held by the caller; it is not made again when it is gone.
        python: the interpreter of the run's opening frame; the agent's own is taken where that is gone,
            where somebody else can exchange it, where it is empty (a spool of another machine), and
            where the stream is another user's.
    """

    def make(results: int) -> JobResult:
        with closing_fd(walk(results, job.name[:-1], create=True)) as folder:
            return _make(job, blobs, folder, python)

    result = attempt_in(final_dir, make)
    if job.slot is not None and result.outcome is not JobOutcome.LATER:
        free_slot(job.slot, blobs)
    return result


def _make(job: FigureJob, blobs: Path, folder: int, python: str) -> JobResult:
    asked = f"{blobs}\0{job.blob}\0{job.slot}".encode("utf-8", "surrogatepass")
    token = hashlib.blake2b(asked, digest_size=8).hexdigest()  # of the job, also when it is done again
    temp = fresh_temp(Path(f"/proc/self/fd/{folder}"), token)
    if not job.cover and is_there(job.name[-1], dir_fd=folder):
        return JobResult(JobOutcome.KEPT)
    own = _interpreter(python, blobs)
    if own is None and importlib.util.find_spec(LIBRARIES[job.kind]) is None:
        return JobResult(JobOutcome.LATER, NO_LIBRARY.format(job.kind, LIBRARIES[job.kind]))
    if own is None and (problem := program_problem(sys.executable)) is not None:
        raise RemoteProtocolError(f"the interpreter is not started: {problem}")
    try:
        with closing_fd(open_within(temp, os.O_RDWR | os.O_EXCL, folder)) as out:
            with _opened_source(job, blobs) as (source, offset):
                reason = _render(
                    own or sys.executable, _request(job, offset), (source, out), TIMEOUT_S[job.kind]
                )
            if reason is None and os.fstat(out).st_size > 0:
                os.fsync(out)
                return _publish(job, folder, temp)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temp, dir_fd=folder)
    reason = reason or "nothing was drawn"
    return JobResult(JobOutcome.LATER if "No space left" in reason else JobOutcome.FAILED, reason)


@contextmanager
def _opened_source(job: FigureJob, blobs: Path) -> Iterator[tuple[int, int]]:
    """Descriptor of the blob or slot, and where the array begins in it."""
    size = job.array.total_bytes if job.array else 0
    if job.slot is not None:
        with opened_slot(job.slot, blobs, size) as opened:
            yield opened
        return
    assert job.blob is not None
    # behind an array there may be what was being added to it when it was sent
    source, found = open_blob(blobs, job.blob, MAX_BLOB_BYTES if job.array is None else sys.maxsize)
    with closing_fd(source):
        if found < size:
            raise RemoteProtocolError(f"blob {job.blob} is shorter than its array")
        yield source, 0


def _request(job: FigureJob, offset: int) -> str:
    request: dict[str, Any] = {"task": job.kind, "format": job.format, "offset": offset}
    if job.array is not None:
        request |= {"shape": job.array.shape, "dtype": job.array.dtype, "fps": job.array.fps}
    if job.caption:
        request["caption"] = job.caption
    return json.dumps(request)


def _interpreter(python: str, blobs: Path) -> str | None:
    """The run's own interpreter, where its stream is this user's and nobody else can exchange it."""
    usable = os.path.isabs(python) and os.lstat(blobs).st_uid == os.geteuid()
    return python if usable and program_problem(python) is None else None


def render_environment() -> dict[str, str]:
    """The environment of a render process, without credentials, sockets or library paths."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment.setdefault("PATH", os.defpath)
    with suppress(KeyError):  # a uid without an entry has no home either
        environment["HOME"] = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return environment | threads | {"MPLBACKEND": "agg"}


def _render(python: str, request: str, files: tuple[int, int], timeout_s: float) -> str | None:
    """Run the render process to its end; None when it succeeded, else why it did not."""
    source, out = files
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [python, "-E", str(RENDER_SCRIPT), request],
            stdin=source,
            stdout=out,
            stderr=errors,
            cwd="/",
            env=render_environment(),
            start_new_session=True,
            umask=0o077,
        )
        status: int | None = None
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if child.returncode is None:  # not reaped yet, so its process group is still its own
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if status == 0:
            return None
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - MAX_REASON_BYTES))
        said = errors.read().decode("utf-8", "replace").strip()
    what = f"not done after {timeout_s:.0f} s" if status is None else f"ended with status {status}"
    return f"the render process {what}: {said}"


def _publish(job: FigureJob, folder: int, temp: str) -> JobResult:
    """Rename the finished temp file."""
    name = job.name[-1]
    if job.cover:
        os.replace(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    elif not claim_name(temp, name, dir_fd=folder):
        return JobResult(JobOutcome.KEPT)
    os.fsync(folder)
    return JobResult(JobOutcome.WRITTEN)
