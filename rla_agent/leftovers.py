"""What a stream leaves behind when it was taken in to its end: shared memory, unused code contents.

Safe to repeat and safe to miss. A child of the training process may hold an arena's lock for a while
after the stream's end, so shared memory is looked at again each MEMORY_SWEEP_INTERVAL_S; the code store
at the next end of a stream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress

from rla_agent.sinks.files import sweep_objects
from rla_agent.sinks.job_source import sweep_arenas
from rla_agent.sinks.media import sweep_abandoned_slots, sweep_slots
from rla_client.places import Places
from rla_client.spool import stream_names

MEMORY_SWEEP_INTERVAL_S = 5.0  # listing /dev/shm and the spool: some 50 us
STORE_SWEEP_INTERVAL_S = 3600.0  # a store of many runs has thousands of files

_log = logging.getLogger("rla_agent.leftovers")
_swept: dict[str, float] = {}


def sweep_memory(places: Places, ended: Iterable[str] = ()) -> None:
    """Free shared memory of ended streams, and of streams that nobody knows any more."""
    with suppress(OSError):
        for stream in ended:
            sweep_slots(stream)
        sweep_abandoned_slots()
        sweep_arenas(places.spool, stream_names(places.spool))


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


def sweep_after(places: Places, stream: str, root: str) -> None:
    """All of it, after the end of one stream."""
    sweep_memory(places, [stream])
    sweep_store(root)
