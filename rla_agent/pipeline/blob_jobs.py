"""Jobs whose payload is a blob: figures, images and videos, and the code of a run.

The agent never looks into the blob of a picture. It opens the blob (or a shared-memory slot) and a hidden
temp file beside the final name, which is below the run's results folder, and starts
`rla_client/media/render.py` with these two as standard input and output: the interpreter is that of the run's
opening frame, if nobody else can exchange it, the environment a short list, the session its own, and nothing
else of the agent is open in it. Then fsync, the final name, fsync of the folder. A file that is there stays
unless the job covers: the final name is taken by link(2), which never replaces. Jobs for one name must be run
in the order they were sent (`FigureJob.name` is the key).

    job kind "figure": name, format, cover, blob
    job kind "image":  name, format, cover, blob | slot, shape, dtype
    job kind "video":  name, format, cover, blob | slot, shape, dtype, fps

A code blob is laid out in `contract/job/code_blob.py`; nothing in it is believed before it has been
checked. `<data_root>/code/.objects/<first two digits>/<the other 62>` holds each content once, named by its
SHA-256, mode 0444; contents of runs whose folders are less open lie beside it under names that end in
`-<mode>`, for a link has the mode of its inode. An item's file is a second name of that inode, so 1,000 runs
of one repository cost one copy and the names. Readers list tables and dates, never names that begin with a
dot, and see ordinary files. Deleting an item deletes names; `sweep_objects` frees the contents that only the
store still names (`st_nlink` is 1), and whoever links at that moment finds the name gone and stores the
content again. An object is complete and durable before it takes its name; before it is linked its bytes are
compared with the content, so a damaged or edited one is replaced, not spread. Where the file system has no
hard links, or an inode has too many, files are copied.

Every job is idempotent: doing it twice leaves the same item.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_agent.pipeline.checkpoint_jobs import (
    JobResult,
    Outcome,
    SourceError,
    free_slot,
    fresh_temp,
    opened_slot,
)
from rla_client.contract.errors import RemoteProtocolError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S, UNNAMED_TEMP, atomic_file, claim_name
from rla_client.contract.filesystem.modes import file_mode, give_mode, open_within
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS, is_there, open_folder, open_root, walk
from rla_client.contract.filesystem.trusted_paths import program_problem
from rla_client.contract.job.arena_layout import SlotRef
from rla_client.contract.job.code_blob import (
    BLOB_MAGIC,
    BLOB_TAIL,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_INDEX_BYTES,
    MAX_TOTAL_BYTES,
)
from rla_client.contract.job.media_job import (
    FORMATS,
    JOB_FIGURE,
    JOB_IMAGE,
    JOB_VIDEO,
    MAX_FPS,
    MAX_FRAMES,
    MAX_RAW_BYTES,
    MAX_SIDE,
)
from rla_client.contract.layout import CODE
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import check_relative, component_problem
from rla_client.contract.spool import protocol

RENDER_JOBS = (JOB_FIGURE, JOB_IMAGE, JOB_VIDEO)
TIMEOUT_S = {JOB_FIGURE: 120.0, JOB_IMAGE: 120.0, JOB_VIDEO: 900.0}
MAX_FIGURE_BLOB_BYTES = 256 << 20  # an imshow of a 4k x 4k float array is half of it
MAX_REASON_BYTES = 2000
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8,
    "int64": 8, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
LIBRARIES = {JOB_FIGURE: "matplotlib", JOB_IMAGE: "PIL", JOB_VIDEO: "numpy"}
NO_LIBRARY = (
    "the {0} waits: the interpreter of its run is not used here, and that of rla-agent has no {1}; "
    "install {1} beside rla-agent, then drain again"
)
PASSED_ON = (
    "LANG", "LC_ALL", "LC_CTYPE", "MPLCONFIGDIR", "PATH", "TMPDIR", "TZ", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
# by path: the agent never imports it
RENDER_SCRIPT = Path(protocol.__file__).parents[2] / "media" / "render.py"

STORE_FOLDER = f"{CODE}/.objects"  # below a data root
STORED_MODE = 0o444  # less what the item's folder does not allow
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_FOR_GOOD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
_PREFIX = re.compile(r"[0-9a-f]{2}\Z")
_REST = re.compile(r"[0-9a-f]{62}(-[0-7]{1,3})?\Z")  # with the mode, where it is not STORED_MODE


def outcome_of(error: OSError) -> Outcome:
    """LATER for what may pass (disk full, I/O error, no permission), FAILED for what cannot."""
    return Outcome.FAILED if error.errno in _FOR_GOOD else Outcome.LATER


def blob_name(value: object) -> str:
    """Check a blob's name: one plain path component."""
    if not isinstance(value, str) or component_problem(value) or value.startswith("."):
        raise RemoteProtocolError(f"no name of a blob: {value!r:.100}")
    return value


def open_blob(folder: Path, name: str, max_bytes: int) -> tuple[int, int]:
    """Open a blob of this uid for reading: (descriptor, bytes).

    Raises:
        OSError: it is not there.
        RemoteProtocolError: it is a link, not ours, no plain file, or too large.
    """
    with closing_fd(os.open(folder, FOLDER_FLAGS)) as parent:
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RemoteProtocolError(f"blob {name} is a link") from error
            raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > max_bytes:
        os.close(descriptor)
        raise RemoteProtocolError(f"blob {name} is not ours, no plain file, or over {max_bytes} bytes")
    return descriptor, found.st_size


def _attempt(final_dir: Path, work: Callable[[int], JobResult]) -> JobResult:
    """Do a job in a folder that the caller holds, and that is not made again when it is gone.

    No error is raised for what a client, a figure or the disk did.
    """
    try:
        folder = open_root(final_dir)
    except OSError as error:
        return JobResult(Outcome.REMOVED, f"{final_dir}: {error.strerror}")
    try:
        with closing_fd(folder):
            return work(folder)
    except (RemoteProtocolError, SourceError, UnsafeNameError) as error:
        return JobResult(Outcome.FAILED, str(error))
    except OSError as error:
        return JobResult(outcome_of(error), f"{error.strerror or error}: {error.filename}")


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
    array: RawArray | None  # of the raw bytes; None for a figure


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
        _parse_slot(slot) if slot is not None and kind != JOB_FIGURE else None,
        None if kind == JOB_FIGURE else _parse_array(fields),
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

    result = _attempt(final_dir, make)
    if job.slot is not None and result.outcome is not Outcome.LATER:
        free_slot(job.slot, blobs)
    return result


def _make(job: FigureJob, blobs: Path, folder: int, python: str) -> JobResult:
    asked = f"{blobs}\0{job.blob}\0{job.slot}".encode("utf-8", "surrogatepass")
    token = hashlib.blake2b(asked, digest_size=8).hexdigest()  # of the job, also when it is done again
    temp = fresh_temp(Path(f"/proc/self/fd/{folder}"), token)
    if not job.cover and is_there(job.name[-1], dir_fd=folder):
        return JobResult(Outcome.KEPT)
    own = _interpreter(python, blobs)
    if own is None and importlib.util.find_spec(LIBRARIES[job.kind]) is None:
        return JobResult(Outcome.LATER, NO_LIBRARY.format(job.kind, LIBRARIES[job.kind]))
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
    return JobResult(Outcome.LATER if "No space left" in reason else Outcome.FAILED, reason)


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
    source, found = open_blob(blobs, job.blob, MAX_FIGURE_BLOB_BYTES if job.array is None else sys.maxsize)
    with closing_fd(source):
        if found < size:
            raise RemoteProtocolError(f"blob {job.blob} is shorter than its array")
        yield source, 0


def _request(job: FigureJob, offset: int) -> str:
    request: dict[str, Any] = {"task": job.kind, "format": job.format, "offset": offset}
    if job.array is not None:
        request |= {"shape": job.array.shape, "dtype": job.array.dtype, "fps": job.array.fps}
    return json.dumps(request)


def _interpreter(python: str, blobs: Path) -> str | None:
    """The run's own interpreter, where its stream is this user's and nobody else can exchange it."""
    usable = os.path.isabs(python) and os.lstat(blobs).st_uid == os.geteuid()
    return python if usable and program_problem(python) is None else None


def render_environment() -> dict[str, str]:
    """The environment of a render process: no credentials, no sockets, no library paths."""
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
    """Give the finished temp file its name."""
    name = job.name[-1]
    if job.cover:
        os.replace(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    elif not claim_name(temp, name, dir_fd=folder):
        return JobResult(Outcome.KEPT)
    os.fsync(folder)
    return JobResult(Outcome.WRITTEN)


def parse_code(fields: object) -> str:
    """Check the fields of a job frame; the name of its blob.

    Raises:
        RemoteProtocolError: they are not what a client writes.
    """
    if not isinstance(fields, dict):
        raise RemoteProtocolError("a code job is not a map")
    return blob_name(fields.get("blob"))


def run_code(name: str, blobs: Path, final_dir: Path, root: str | os.PathLike[str]) -> JobResult:
    """Fill an item of the kind `code` from a blob; no error is raised for what a client or the disk did.

    Args:
        name: of the blob, from `parse_code`.
        blobs: the stream's blob folder.
        final_dir: the item folder, held by the caller; it is not made again when it is gone.
        root: the data root; its store is made when it is missing.
    """

    def fill(item: int) -> JobResult:
        blob, size = open_blob(blobs, name, MAX_TOTAL_BYTES + MAX_FILE_BYTES + MAX_INDEX_BYTES)
        with closing_fd(blob):
            index = read_index(blob, size)
            with opened_store(root) as store:
                return _fill(item, blob, index, store)

    return _attempt(final_dir, fill)


def read_index(blob: int, size: int) -> list[tuple[tuple[str, ...], int, int]]:
    """Check a code blob's index: (name parts, offset, bytes) of each file.

    Raises:
        RemoteProtocolError: the blob is cut short or not one.
        UnsafeNameError: a name would leave the item folder.
    """
    tail = os.pread(blob, BLOB_TAIL.size, max(size - BLOB_TAIL.size, 0))
    if os.pread(blob, 8, 0) != BLOB_MAGIC or tail[4:] != BLOB_MAGIC:
        raise RemoteProtocolError("code blob is cut short or not one")
    length = int.from_bytes(tail[:4], "little")
    start = size - BLOB_TAIL.size - length
    if length > MAX_INDEX_BYTES or start < len(BLOB_MAGIC):
        raise RemoteProtocolError("code blob has no index")
    entries = protocol.unpack(os.pread(blob, length, start))
    if not isinstance(entries, list) or len(entries) > MAX_FILES + 1:
        raise RemoteProtocolError("code blob names too many files")
    offset = len(BLOB_MAGIC)
    index = []
    for entry in entries:
        match entry:
            case [str() as name, int() as length] if 0 <= length <= MAX_FILE_BYTES:
                index.append((check_relative(name, what="code file"), offset, length))
                offset += length
            case _:
                raise RemoteProtocolError("code blob has a malformed entry")
    if offset != start:
        raise RemoteProtocolError("sizes in the code blob do not add up")
    return index


def _fill(item: int, blob: int, index: list[tuple[tuple[str, ...], int, int]], store: Store) -> JobResult:
    folders: set[tuple[str, ...]] = {()}
    for parts, offset, size in index:
        data = os.pread(blob, size, offset)
        if len(data) != size:
            raise RemoteProtocolError("code blob shrank while it was read")
        with closing_fd(walk(item, parts[:-1], create=True)) as folder:
            store.place(data, folder, parts[-1])
        folders.update(parts[:depth] for depth in range(len(parts)))
    for parts in sorted(folders, key=len, reverse=True):
        with closing_fd(walk(item, parts, create=True)) as folder:
            os.fsync(folder)
    return JobResult(Outcome.WRITTEN)


@contextmanager
def opened_store(root: str | os.PathLike[str]) -> Iterator[Store]:
    """The contents of a data root; where `.objects` is a link or a file, items get copies instead."""
    try:
        folder = open_folder(root, STORE_FOLDER, create=True)
    except NotADirectoryError:
        yield Store(None)
        return
    with closing_fd(folder):
        yield Store(folder)


class Store:
    """The contents of one database."""

    def __init__(self, folder: int | None) -> None:
        self._folder = folder  # None: no content can be shared

    def place(self, data: bytes, folder: int, name: str) -> None:
        """Give the item folder a file `name` with this content; one that is there stays.

        Raises:
            OSError: the disk does not take it.
        """
        mode = STORED_MODE & file_mode(folder)
        digest = hashlib.sha256(data).hexdigest() + ("" if mode == STORED_MODE else f"-{mode:o}")
        anew = False
        for _ in range(3):
            if self._folder is None:
                break
            try:
                with closing_fd(walk(self._folder, (digest[:2],), create=True)) as objects:
                    _keep(objects, digest[2:], data, mode, anew=anew)
                    os.link(digest[2:], name, src_dir_fd=objects, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return
            except FileNotFoundError:
                continue  # swept between the look and the link
            except (NotADirectoryError, IsADirectoryError):
                break  # something else has the name: this file is a copy
            except OSError as error:
                if error.errno == errno.EMLINK:
                    anew = True
                    continue
                if error.errno not in _NO_LINKS:
                    raise
                self._folder = None
            else:
                return
        with suppress(FileExistsError):
            _write_file(folder, name, data, mode, exclusive=True)


def _keep(objects: int, name: str, data: bytes, mode: int, *, anew: bool) -> None:
    """Be sure that the object is there and is this content."""
    if anew or not _holds(objects, name, data):
        _write_file(objects, name, data, mode)
        os.fsync(objects)


def _holds(objects: int, name: str, data: bytes) -> bool:
    try:
        with open(os.open(name, READ_FLAGS, dir_fd=objects), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(data) + 1) == data
    except OSError:
        return False  # missing or unreadable: written anew


def _write_file(folder: int, name: str, data: bytes, mode: int, *, exclusive: bool = False) -> None:
    with atomic_file(name, mode=mode, dir_fd=folder, durable=False, exclusive=exclusive) as file:
        file.write(data)
        file.flush()
        give_mode(file.fileno(), mode)
        os.fsync(file.fileno())  # the folder is synced once for all of its files


def sweep_objects(root: str | os.PathLike[str], now: float) -> int:
    """Free the contents that no run of a data root uses any more; returns the bytes freed.

    To be called now and then, and after items were deleted. Safe beside running jobs, also of
    agents on other machines that share the database. Only files that are named as objects are deleted,
    and temp files that nobody will finish; no link is followed.

    Args:
        root: the data root.
        now: Unix seconds, for the age of temp files.

    Raises:
        OSError: the store cannot be read.
    """
    try:
        store = open_folder(root, STORE_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    with closing_fd(store):
        return sum(_sweep(store, name, now) for name in sorted(os.listdir(store)) if _PREFIX.match(name))


def _sweep(store: int, prefix: str, now: float) -> int:
    try:
        folder = walk(store, [prefix])
    except (FileNotFoundError, NotADirectoryError):
        return 0
    freed = 0
    with closing_fd(folder):
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and _is_unused(name, found, now):
                    os.unlink(name, dir_fd=folder)
                    freed += found.st_size
    with suppress(OSError):
        os.rmdir(prefix, dir_fd=store)
    return freed


def _is_unused(name: str, found: os.stat_result, now: float) -> bool:
    return bool(_REST.match(name)) or (
        UNNAMED_TEMP.match(name) is not None and now - found.st_mtime >= OLD_TEMP_S
    )
