"""Item files that arrive as records of a stream.

These are parameters, notes, environment and small snapshots. One is durable before its stream's position
passes it, so one that cannot be written blocks the rest of the stream. Only a fault that is not the file's
own may block it for long: a full or broken disk, an agent out of descriptors, a missing data root. Where a
folder is missing or a name taken, the file is discarded at once; where writing is forbidden, after REFUSED_S.
A discarded file is named in the log and, as long as its stream is here, among the problems of `status`.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import time
from contextlib import suppress

from rla_agent.model.records import ItemFile
from rla_agent.outputs.data_root_presence import same_root
from rla_agent.pipeline.stream import Stream
from rla_client.contract.errors import RlaError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.job.snapshot_footer import is_older
from rla_client.contract.layout import OWN_NAMES
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.safe_names import check_relative
from rla_client.contract.spool.opening import Opening

REFUSED_S = 60.0  # rows wait meanwhile; whoever fixes a mount or the rights of a folder is done by then
MOST_FAULTS = 20  # of one stream in `status`; the log has all
# a folder or a link is where the file would go, or its folder is not there
NEVER = frozenset((
    errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT,
))  # fmt: skip
# these are no fault of the file: everything that the agent writes has to wait
WAITS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_log = logging.getLogger("rla_agent.pipeline.item_files")


def keep_item_file(opening: Opening, file: ItemFile) -> None:
    """Make a small file of the item durable; an equal one that is there already is only synced.

    A snapshot never replaces a later one.

    Raises:
        OSError: it could not be written.
        UnsafeNameError: the name leaves the item.
    """
    *below, name = check_relative(file.path, what="item file")
    where = "/".join([opening.folders[file.kind], *below])
    with closing_fd(open_folder(opening.root, where, create=bool(below))) as folder:
        path = f"/proc/self/fd/{folder}/{name}"
        if is_older(file.content, path):  # the later one did not go through the spool, which was full
            return
        with suppress(FileNotFoundError), closing_fd(os.open(path, READ_FLAGS)) as descriptor:
            if os.read(descriptor, len(file.content) + 1) == file.content:
                os.fsync(descriptor)
                os.fsync(folder)
                return
        write_atomic(path, file.content, mode=file_mode(folder))


def _check_not_own(stream: Stream, file: ItemFile) -> None:
    """Refuse a file that would take the place of one that we write ourselves, again and again.

    Raises:
        UnsafeNameError: it would.
    """
    if not OWN_NAMES.isdisjoint(file.path.split("/")):
        raise UnsafeNameError(f"item file {file.path!r} cannot be used: the name is the agent's")
    opening = stream.opening
    path = os.path.normpath(os.path.join(opening.root, opening.folders[file.kind], file.path))
    ours = {os.path.join(opening.log_folder, RUN_FILE), *(output.path for output in stream.outputs)}
    if path in ours:
        raise UnsafeNameError(f"item file {file.path!r} cannot be used: the agent writes this one itself")


def keep_new_files(stream: Stream, faults: dict[str, str], now: float, until: float = math.inf) -> bool:
    """Write the files that a stream brought, in order; one that cannot be written yet waits.

    Of several contents of one file only the last is written.

    Args:
        stream: its `new_files` wait.
        faults: what `status` shows, by `<stream>/<file>`.
        now: monotonic.
        until: by the same clock; later files wait for the next turn. One is written in any case.

    Returns:
        Whether files are left only for lack of time.
    """
    waiting = stream.new_files
    if stream.removed:
        waiting.clear()
    waiting.drop_superseded()
    while waiting:
        file = waiting.first
        fault = f"{stream.name}/{file.path}"
        try:
            _check_not_own(stream, file)
            keep_item_file(stream.opening, file)
        except OSError as error:
            if _may_pass(stream, error, now):
                why = error.strerror or error  # the error's path is that of a descriptor
                faults[fault] = f"{file.path} is not kept yet: {why}: {stream.opening.root}"
                return False
            _discard(stream, file, error.strerror or str(error), faults)
        except (RlaError, KeyError) as error:
            _discard(stream, file, str(error), faults)
        else:
            faults.pop(fault, None)
        waiting.end_first()
        if waiting and time.monotonic() > until:
            return True
    return False


def _may_pass(stream: Stream, error: OSError, now: float) -> bool:
    """Whether a file is to be tried again."""
    if error.errno in WAITS:
        return True
    if error.errno in NEVER:  # unless all of the data root is away
        return error.errno == errno.ENOENT and not same_root(stream.opening)
    if stream.new_files.refused_for(now) < REFUSED_S:
        return True
    rows_wait_too = not os.access(stream.opening.log_folder, os.W_OK)
    return error.errno == errno.EROFS and rows_wait_too


def _discard(stream: Stream, file: ItemFile, why: str, faults: dict[str, str]) -> None:
    fault = f"{stream.name}/{file.path}"
    stream.give_up_file(file.path, why)
    message = f"{file.path} was not kept: {why}"
    _log.warning("%s: %s", stream.opening.log_folder, message)
    if fault in faults or sum(key.startswith(f"{stream.name}/") for key in faults) < MOST_FAULTS:
        faults[fault] = message


def drop_faults(faults: dict[str, str], stream: str) -> None:
    """Forget what was wrong with a stream that is gone, and with its files."""
    for key in [key for key in faults if key == stream or key.startswith(f"{stream}/")]:
        del faults[key]
