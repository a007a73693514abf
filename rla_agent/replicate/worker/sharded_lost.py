"""Repair of sharded checkpoints of several machines on the master.

Files that the master has lost are sent back. The folder is not this machine's alone: another one may replace
it with a later save at any time. So a file is sent only where `whole.json` there is the one that this machine
knows, and the sent bytes are compared with it. They go under a temporary name in the folder, and `whole.json`
is read after them: a folder that was moved away meanwhile has taken the temporary file along, and the rename
fails.

`of_whole` belongs to the worker's thread, the rest runs on a sender's.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial

from rla_agent.replicate.backend.errors import DeniedError, MissingError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.upload import Upload
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import PRUNED, Key
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.source_file import SourceFile, fingerprint_of
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.sharded_checkpoint.files import receipt_rank
from rla_client.contract.sharded_checkpoint.records import MAX_RECEIPT_BYTES, MAX_WHOLE_BYTES, Receipt, Whole


class OthersSaveError(Exception):
    """The name belongs to another save there, or to none: nothing is to be sent."""


def of_whole(ledger: Ledger, number: int, path: bytes, item: bytes) -> bytes | None:
    """SHA-256 of the `whole.json` that must be there with a file of a database; None: it is not of several.

    Empty where the ledger does not have it.
    """
    found = sharded_order.split(CHECKPOINT, path)
    own = b"" if found is None else sharded_order.own_folder(found[0])
    row = ledger.states(number, own).get(sharded_order.MARK) if own else None
    if row is None or row[0] != PRUNED:
        return None
    record = ledger.record(Key(ledger.folder(number, own, CHECKPOINT, item), sharded_order.MARK))
    return b"" if record is None or record.sha256 is None else record.sha256


def whole_there(session: TargetSession, path: bytes, sha256: bytes) -> Whole | None:
    """Content of the master's `whole.json` beside a file; None where it has another sum.

    Raises:
        TargetError: it cannot be read now.
    """
    found = sharded_order.split(CHECKPOINT, path)
    assert found is not None, path
    mark = sharded_order.own_folder(found[0]) + b"/" + sharded_order.MARK
    with suppress(MissingError, RemoteProtocolError):
        state = session.stat(mark)
        content = b"" if state is None else session.read(mark, 0, min(state.size, MAX_WHOLE_BYTES))
        if hashlib.sha256(content).digest() == sha256:
            return Whole.decode(content)
    return None


def send_lost(session: TargetSession, upload: Upload, source: SourceFile, sha256: bytes) -> RemoteStat:
    """Send a file into the checkpoint whose `whole.json` has this sum, unless it is there already.

    Raises:
        OthersSaveError: that `whole.json` is not there.
        TargetError, SourceChangedError: it could not be sent; the local file may be damaged.
    """
    whole = whole_there(session, upload.path, sha256)
    if whole is None:
        raise OthersSaveError
    if not _is_of(whole, upload.path, source, upload.size):
        raise DeniedError(
            "send", upload.path, "the local file differs from what whole.json says of it", "rla fsck --hashes"
        )
    there = session.stat(upload.path)
    if there is not None and there.size == upload.size:
        found = fingerprint_of(partial(session.read, upload.path), upload.size)
        if found == source.fingerprint(upload.size):
            return there
    return session.upload(replace(upload, expect=there, unchanged=partial(_may_go, session, upload, sha256)))


def _may_go(session: TargetSession, upload: Upload, sha256: bytes) -> bool:
    """Whether the temporary file may take its name; checked just before."""
    return whole_there(session, upload.path, sha256) is not None and upload.unchanged()


def _is_of(whole: Whole, path: bytes, source: SourceFile, size: int) -> bool:
    """Whether the local file is that of a save, byte by byte."""
    found = sharded_order.split(CHECKPOINT, path)
    assert found is not None, path
    name = os.fsdecode(found[1])
    for entry in (*whole.files, whole.metadata):
        if entry.file == name:
            return (entry.size, entry.sha256) == (size, source.fingerprint(size).sha256.hex())
    rank = receipt_rank(name.rpartition("/")[2])
    if rank is None:
        return True  # a file that no load needs
    try:
        return Receipt.decode(source.read(0, min(size, MAX_RECEIPT_BYTES))).save == whole.save
    except RemoteProtocolError:
        return False
