"""The code backup of a run.

`back_up_code` walks the project, reads its files and writes one blob (contract/job/code_blob.py) into the
spool; then a JOB frame of kind `code` names the blob. The agent unpacks it into `code/<index>/`, where equal
files of all runs share one inode. So the content is that of the time of the call, no agent needs to run, and
the run starts only some tens of milliseconds later. If the spool takes no blob, the caller copies the files.
Files over MAX_FILE_BYTES, and those beyond MAX_TOTAL_BYTES or MAX_FILES, are listed in the report and not
copied. `file_selection.py` selects the files.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.file_selection import select_files
from rla_client.contract.errors import SpoolError
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS
from rla_client.contract.job.code_blob import (
    BLOB_MAGIC,
    BLOB_TAIL,
    JOB_CODE,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
)
from rla_client.contract.process.descriptors import open_high
from rla_client.contract.safe_names import component_problem
from rla_client.contract.spool.protocol import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rla_client.stream.outbox import Outbox


def back_up_code(
    plan: BackupPlan, outbox: Outbox | None, code_dir: Path, warn: Callable[[str], None]
) -> BackupReport:
    """Capture the project's files; a failure is a warning, never an error.

    Args:
        plan: the files to capture.
        outbox: takes the blob and the job; None: copy the files at once.
        code_dir: item folder of the kind `code`, into which the files are copied if the spool takes no blob.
        warn: gets at most one text.

    Returns:
        The report. Edits of the files after the return do not change what was captured.
    """
    started = time.perf_counter()
    report = BackupReport()
    try:
        _capture(plan, outbox, code_dir, report)
    except Exception as error:  # noqa: BLE001 - public edge: a run never fails for its code backup
        report.notes.append(f"stopped early: {type(error).__name__}: {error}")
    report.took_s = time.perf_counter() - started
    text = report.warning()
    if text:
        warn(text)
    return report


def _capture(plan: BackupPlan, outbox: Outbox | None, code_dir: Path, report: BackupReport) -> None:
    files = select_files(plan, report)
    folder = None if outbox is None else outbox.blobs_folder
    if outbox is not None and folder is not None:
        try:
            name = _write_blob(folder, outbox.blob_room, files, report)
        except OSError as error:
            report.notes.append(f"the spool took no blob ({error.strerror or error}), so files were copied")
            report.files = report.total_bytes = 0
        else:
            if outbox.job(JOB_CODE, {"blob": name}):
                return
            with suppress(OSError):
                (folder / name).unlink()
            report.notes.append(f"{outbox.why_refused}, so files were copied")
            report.files = report.total_bytes = 0
    _copy(files, code_dir, report)


def _contents(files: Iterable[tuple[str, str]], report: BackupReport) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files within the limits; the report lists the others."""
    for name, path in files:
        data = _read_file(name, path, report)
        if data is None:
            continue
        report.files += 1
        report.total_bytes += len(data)
        yield name, data


def _read_file(name: str, path: str, report: BackupReport) -> bytes | None:
    for problem in filter(
        None, map(component_problem, name.split("/"))
    ):  # the agent would refuse the whole blob
        report.leave_out(repr(name)[1:-1], 0, f"its name: {problem}")
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        report.leave_out(name, 0, error.strerror or "unreadable")
        return None
    try:
        size = os.fstat(descriptor).st_size
        why = _limit_passed(size, report)
        if why is None:
            data = _read_up_to(descriptor, MAX_FILE_BYTES + 1)
            why = _limit_passed(len(data), report)
            if why is None:
                return data
        report.leave_out(name, size, why)
    except OSError as error:
        report.leave_out(name, 0, error.strerror or "unreadable")
    finally:
        os.close(descriptor)
    return None


def _read_up_to(descriptor: int, limit: int) -> bytes:
    first = os.read(descriptor, 1 << 18)
    if len(first) < 1 << 18:
        return first
    parts = [first]
    room = limit - len(first)
    while room > 0 and (part := os.read(descriptor, room)):
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def _limit_passed(size: int, report: BackupReport) -> str | None:
    if size > MAX_FILE_BYTES:
        return f"over {MAX_FILE_BYTES >> 20} MiB"
    if report.total_bytes + size > MAX_TOTAL_BYTES:
        return f"past {MAX_TOTAL_BYTES >> 20} MiB in all"
    if report.files >= MAX_FILES:
        return f"past {MAX_FILES} files"
    return None


def _write_blob(folder: Path, room: int, files: list[tuple[str, str]], report: BackupReport) -> str:
    """Write the blob and return its name.

    Raises:
        OSError: the spool takes no blob; a partial blob is removed.
    """
    name = f"code-{os.urandom(8).hex()}"
    path = folder / name
    index: list[tuple[str, int]] = []
    try:
        descriptor = open_high(path, NEW_FLAGS)
        with open(descriptor, "wb", buffering=1 << 20) as blob:
            blob.write(BLOB_MAGIC)
            for relative, data in _contents(files, report):
                room -= len(data)
                if room < 0:
                    raise OSError(errno.EDQUOT, "AGENT.spool_max_bytes is reached")  # noqa: TRY301 - as a write does
                blob.write(data)
                index.append((relative, len(data)))
            packed = pack(index)
            blob.write(packed)
            blob.write(BLOB_TAIL.pack(len(packed), BLOB_MAGIC))
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    return name


def _copy(files: list[tuple[str, str]], code_dir: Path, report: BackupReport) -> None:
    """Copy the files into the item folder, without a spool.

    Raises:
        SpoolError: the folder cannot be written either.
    """
    try:
        for name, data in _contents(files, report):
            target = code_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), open(target, "xb") as file:
                file.write(data)
    except OSError as error:
        raise SpoolError(f"cannot write below {code_dir}: {error.strerror or error}") from error
