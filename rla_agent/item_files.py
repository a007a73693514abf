"""Small whole files of an item that come as records: parameters, notes, environment, small snapshots."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from rla_agent.gone_on import RUN_FILE
from rla_agent.ingest import ItemFile
from rla_agent.opening import StreamOpening, open_folder
from rla_agent.stream import Stream
from rla_client.errors import RlaError, UnsafeNameError
from rla_client.layout import check_relative
from rla_client.snapshot_job import is_older
from rla_client.storage import write_atomic

# a folder or a link is where the file would go: one name must not hold up its stream for ever
NEVER = frozenset((errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL))


def keep_item_file(opening: StreamOpening, file: ItemFile) -> None:
    """Make a small file of the item durable; what is there already and equal is only synced.

    A snapshot takes no place of a later one.

    Raises:
        OSError: it could not be written.
        UnsafeNameError: the name leaves the item.
    """
    *below, name = check_relative(file.path, what="item file")
    folder = open_folder(opening.root, "/".join([opening.folders[file.kind], *below]), create=bool(below))
    try:
        path = f"/proc/self/fd/{folder}/{name}"
        if is_older(file.content, path):  # the later one did not go through the spool, which was full
            return
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.read(descriptor, len(file.content) + 1) == file.content:
                    os.fsync(descriptor)
                    os.fsync(folder)
                    return
            finally:
                os.close(descriptor)
        write_atomic(path, file.content)
    finally:
        os.close(folder)


def _check_not_own(stream: Stream, file: ItemFile) -> None:
    """Refuse a file that would take the place of one that we write ourselves, again and again.

    Raises:
        UnsafeNameError: it would.
    """
    opening = stream.opening
    path = os.path.normpath(os.path.join(opening.root, opening.folders[file.kind], file.path))
    if path in {os.path.normpath(output.path) for output in stream.outputs} | {
        os.path.join(opening.log_folder, RUN_FILE)
    }:
        message = f"item file {file.path!r} cannot be used: the agent writes this one itself"
        raise UnsafeNameError(message)


def keep_new_files(stream: Stream, faults: dict[str, str]) -> None:
    """Write the files that a stream brought, in order; one that cannot be written yet waits.

    Of several contents of one file only the last is written.
    """
    newest = {(file.kind, file.path): file for file in stream.new_files}
    while stream.new_files and not stream.removed:
        file = stream.new_files[0]
        if newest[file.kind, file.path] is not file:
            del stream.new_files[0]
            continue
        fault = f"{stream.name}/{file.path}"
        try:
            _check_not_own(stream, file)
            keep_item_file(stream.opening, file)
        except OSError as error:
            if error.errno not in NEVER:
                faults[fault] = f"{file.path} is not kept yet: {error}"
                return
            faults[fault] = f"{file.path} was not kept: {error.strerror}"
        except (RlaError, KeyError) as error:
            faults[fault] = f"{file.path} was not kept: {error}"
        else:
            faults.pop(fault, None)
        del stream.new_files[0]
    stream.new_files.clear()
