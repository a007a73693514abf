"""Code jobs, which store the sources of a run.

The layout of a code blob is in `rla_client/contract/job/code_blob.py`; everything in it is checked.
"""

from __future__ import annotations

import os
from pathlib import Path

from rla_agent.jobs.code_store import Store, opened_store
from rla_agent.jobs.job_source import blob_name, open_blob
from rla_agent.jobs.outcome import JobOutcome, JobResult, attempt_in
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.safe_paths import walk
from rla_client.contract.job.code_blob import (
    BLOB_MAGIC,
    BLOB_TAIL,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_INDEX_BYTES,
    MAX_TOTAL_BYTES,
)
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import check_relative
from rla_client.contract.spool import protocol


def parse_code(fields: object) -> str:
    """Check the fields of a job frame; returns the name of its blob.

    Raises:
        RemoteProtocolError: they are invalid.
    """
    if not isinstance(fields, dict):
        raise RemoteProtocolError("a code job is not a map")
    return blob_name(fields.get("blob"))


def run_code(name: str, blobs: Path, final_dir: Path, root: str | os.PathLike[str]) -> JobResult:
    """Fill an item of the kind `code` from a blob; faults of client or disk raise no error.

    Args:
        name: of the blob, from `parse_code`.
        blobs: the stream's blob folder.
        final_dir: the item folder, opened by the caller; it is not made again when it is gone.
        root: the data root; its store is made when it is missing.
    """

    def fill(item: int) -> JobResult:
        blob, size = open_blob(blobs, name, MAX_TOTAL_BYTES + MAX_FILE_BYTES + MAX_INDEX_BYTES)
        with closing_fd(blob):
            index = read_index(blob, size)
            with opened_store(root) as store:
                return _fill(item, blob, index, store)

    return attempt_in(final_dir, fill)


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
    return JobResult(JobOutcome.WRITTEN)
