"""Direct writes of checkpoints by the training process."""

from __future__ import annotations

import pickle
import zipfile
from contextlib import suppress
from pathlib import Path

from rla_client.checkpoint.blob_file import sync_file
from rla_client.checkpoint.torch_names import torch_module
from rla_client.contract.checkpoint.checkpoint_removal import remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.stamp import STAMP_RECORD, Stamp
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, replacing
from rla_client.contract.job.checkpoint_job import final_name
from rla_client.contract.process.descriptors import standard_taken


class NotWrittenError(Exception):
    """The disk refused a checkpoint; the message says why."""


def write_checkpoint(content: object, path: Path, stamp: Stamp) -> int:
    """torch.save with our stamp, not synced; the file's size in bytes.

    Raises:
        ArgumentError: the content cannot be pickled.
        NotWrittenError: the disk did not take it; no file is left.
    """
    complete = False
    try:
        with standard_taken():
            torch_module().save(content, path)
            with zipfile.ZipFile(path, "a") as file:
                top = file.namelist()[0].split("/", 1)[0]
                file.writestr(f"{top}/{STAMP_RECORD}", stamp.encode())
        complete = True
        return path.stat().st_size
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, NotImplementedError) as error:
        raise ArgumentError(f"this content cannot be saved: {error}") from error
    except RuntimeError as error:
        if "view the same data" in str(error):
            raise ArgumentError(f"this content cannot be saved: {error}") from error
        raise NotWrittenError(str(error)) from error  # torch's writer reports a full disk this way
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
            sync_file(temp)
        remove_superseded(final.parent, stamp.name, stamp.run, retention)
    except OSError as error:
        raise NotWrittenError(str(error)) from error
