"""Turns of the processes that open or join the run of one id.

Frameworks start the processes of a run at the same time, each with the run's id. Without turns, two processes
could find no run to join, and each would open one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.process.locks import wait_for_record
from rla_client.run.run_mode import disabled

TURN_S = 30.0  # wait for the turn of another process, which may be stopped; opening a run takes less
_FILE = "wandb_ids.lock"  # a byte of it for each id


@contextmanager
def turn_of_id(run_id: str | None) -> Iterator[None]:
    """Hold the turn of an id among this user's processes; after `TURN_S` the block runs without it."""
    with ExitStack() as held:
        if run_id is not None and not disabled():
            with suppress(RlaError, OSError):
                places = find_places()
                places.create()
                file = held.enter_context((places.state / _FILE).open("wb"))
                byte = zlib.crc32(run_id.encode("utf-8", "backslashreplace"))
                wait_for_record(file.fileno(), byte, TURN_S)
        yield
