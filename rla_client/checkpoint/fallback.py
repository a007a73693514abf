"""Checkpoints written by the training process itself, where shared memory or the agent is missing."""

from __future__ import annotations

import os
import pickle
import threading
import zipfile
from contextlib import suppress
from pathlib import Path

from rla_client.checkpoint.tensors import torch_module
from rla_client.contract.checkpoint_job import STAMP_RECORD, Retention, Stamp, final_name
from rla_client.contract.descriptors import OwnFile
from rla_client.contract.errors import ArgumentError
from rla_client.contract.files import TEMP_PREFIX, replacing
from rla_client.contract.retention import remove_superseded

FREE_DISK_SHARE = 0.05  # never fill a disk further than this


class NotWrittenError(Exception):
    """The disk did not take a checkpoint; says why."""


def write_checkpoint(content: object, path: Path, stamp: Stamp) -> int:
    """torch.save with our stamp, not synced; the file's size in bytes.

    Raises:
        ArgumentError: the content cannot be pickled.
        NotWrittenError: the disk did not take it; no file is left.
    """
    complete = False
    try:
        torch_module().save(content, path)
        with zipfile.ZipFile(path, "a") as file:
            top = file.namelist()[0].split("/", 1)[0]
            file.writestr(f"{top}/{STAMP_RECORD}", stamp.encode())
        complete = True
        return path.stat().st_size
    except (
        pickle.PicklingError,
        TypeError,
        AttributeError,
        RecursionError,
        NotImplementedError,
    ) as error:
        raise ArgumentError(f"this content cannot be saved: {error}") from error
    except RuntimeError as error:
        if "view the same data" in str(error):
            raise ArgumentError(f"this content cannot be saved: {error}") from error
        raise NotWrittenError(str(error)) from error  # torch's writer reports a full disk so
    except (OSError, zipfile.BadZipFile, IndexError) as error:
        raise NotWrittenError(str(error)) from error
    finally:
        if not complete:
            with suppress(OSError):
                path.unlink()


def write_final(content: object, folder: Path, stamp: Stamp, retention: Retention) -> None:
    """Write the final file durably, then remove those that it supersedes.

    Raises:
        ArgumentError: the content cannot be pickled.
        NotWrittenError: the disk did not take it.
    """
    final = folder / final_name(stamp.name, stamp.time_step)
    try:
        with replacing(final, temp=f"{TEMP_PREFIX}{stamp.token}.pt") as temp:  # torch wants a stem
            write_checkpoint(content, temp, stamp)
            fsync_file(temp)
        remove_superseded(final.parent, stamp.name, stamp.run, retention)
    except OSError as error:
        raise NotWrittenError(str(error)) from error


def sync_later(blob: Path) -> None:
    """Make a blob durable without waiting for it."""

    def sync() -> None:
        with suppress(OSError):  # the agent has taken it, or will report what became of it
            fsync_file(blob)

    with suppress(RuntimeError):  # no more threads: the kernel writes it in its own time
        threading.Thread(target=sync, name="rla-blob-sync", daemon=True).start()


def has_room(folder: Path) -> bool:
    """Whether the disk of a folder may be filled further."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail > FREE_DISK_SHARE * found.f_blocks


def fsync_file(path: Path) -> None:
    """Make a file's content durable.

    Raises:
        OSError: it is not sure to be.
    """
    with OwnFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        os.fsync(file.number)
