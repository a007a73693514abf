"""Cleanup of the leftovers of ended streams.

Leftovers are shared memory, copies of a fork, unused code and half-made streams. Copies of a fork go before
the stream does. The rest is safe to repeat and safe to skip. A child of the training process may hold an
arena's lock for a while after the stream's end, so shared memory is looked at again each
MEMORY_SWEEP_INTERVAL_S; the code store at the next end of a stream.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from rla_agent.jobs.code_store import sweep_objects
from rla_agent.jobs.shm_cleanup import sweep_arenas
from rla_agent.pipeline.remove_stream import GONE_PREFIX
from rla_agent.pipeline.segment_reader import read_opening
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import FORK_COPY_PREFIX, TEMP_PREFIX
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.segments import stream_names

HALF_MADE_S = 60.0  # no client takes so long to make a stream
MEMORY_SWEEP_INTERVAL_S = 5.0  # listing /dev/shm and the spool takes some 50 us
STORE_SWEEP_INTERVAL_S = 3600.0  # a store of many runs has thousands of files
_swept: dict[str, float] = {}
_log = logging.getLogger("rla_agent.pipeline.stream_cleanup")


def sweep_half_made(spool: Path) -> None:
    """Remove streams that a client was killed in the middle of making, or an agent of removing."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            old = entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > HALF_MADE_S
            if old or entry.name.startswith(GONE_PREFIX):
                shutil.rmtree(entry.path, ignore_errors=True)


def sweep_memory(places: Places) -> None:
    """Free shared memory of ended streams and of unknown ones."""
    with suppress(OSError):
        sweep_arenas(places.spool, stream_names)


def sweep_store(root: str) -> None:
    """Free code contents of a database that no run uses any more, at most once an hour."""
    now = time.monotonic()
    if now - _swept.get(root, float("-inf")) < STORE_SWEEP_INTERVAL_S:
        return
    _swept[root] = now
    try:
        freed = sweep_objects(root, time.time())
    except OSError as error:
        _log.warning("code store of %s not swept: %s", root, error)
        return
    if freed:
        _log.info("freed %d bytes of code that no run of %s uses", freed, root)


def sweep_fork_copies(spool: Path, stream: str, opening: Opening) -> None:
    """Remove what forks of a run copied and did not hand over, before the last stream of the run goes.

    A process that copies has a stream in the spool all the time; so has a copy that was handed over, until
    its files are in place.
    """
    with suppress(OSError), closing_fd(open_folder(opening.root, opening.folders["log"])) as folder:
        copies = [name for name in os.listdir(folder) if name.startswith(FORK_COPY_PREFIX)]
        if copies and not _has_others(spool, stream, opening.run):
            for name in copies:
                shutil.rmtree(f"/proc/self/fd/{folder}/{name}")


def _has_others(spool: Path, stream: str, run: str) -> bool:
    for name in stream_names(spool):
        try:
            if name != stream and read_opening(spool / name)[0].run == run:
                return True
        except FileNotFoundError:
            continue
        except (OSError, RlaError):
            return True  # it may be one
    return False


def sweep_after(places: Places, opening: Opening) -> None:
    """All of it, after the end of one stream."""
    sweep_memory(places)
    sweep_store(opening.root)
