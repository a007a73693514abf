"""Repeated pull of a selection (`pull --follow`).

It is for TensorBoard or a plot on a laptop. The connection is kept; when it breaks, a new one is made after a
while.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.transfer.reading_sessions import Readers
from rla_agent.replicate.transfer.tally import Tally
from rla_agent.replicate.worker.retry_backoff import backoff_s

LONGEST_REST_S: Final = 60.0  # somebody watches


def follow(
    connect: Callable[[], Readers],
    pull: Callable[[Readers], Tally],
    every_s: float,
    tell: Callable[[Tally], None],
    complain: Callable[[str], None],
) -> None:
    """Pull repeatedly until an interrupt.

    `tell` takes the result of each pull, `complain` a line about a broken connection.

    Raises:
        TargetError: the master refuses; transient errors are retried.
    """
    tries = 0
    while True:
        try:
            with closing(connect()) as readers:
                while True:
                    tell(pull(readers))
                    tries = 0
                    time.sleep(every_s)
        except LinkError as error:
            tries += 1
            rest = min(LONGEST_REST_S, max(1.0, backoff_s(tries, random.random())))  # noqa: S311
            complain(f"{error}; trying again in {rest:.0f} s")
            time.sleep(rest)
