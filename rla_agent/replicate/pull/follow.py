"""`pull --follow`: keep a selection's files current, for TensorBoard or a plot on a laptop.

Logs that grow on the master grow here too, in place (`grow`). The connection is kept; when it breaks, a new
one is made after a while.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from rla_agent.replicate.backend.target import LinkError, Session
from rla_agent.replicate.pull.transfer import Tally
from rla_agent.replicate.worker.plan import backoff_s

LONGEST_REST_S: Final = 60.0  # somebody watches


def follow(
    connect: Callable[[], Session],
    pull: Callable[[Session], Tally],
    every_s: float,
    tell: Callable[[Tally], None],
    complain: Callable[[str], None],
) -> None:
    """Pull again and again, until somebody interrupts.

    Args:
        connect: opens a session.
        pull: fetches what is new.
        every_s: seconds between two looks.
        tell: takes what came of each look.
        complain: takes a line about a connection that broke.

    Raises:
        TargetError: the master refuses; whatever may pass is tried again.
    """
    tries = 0
    while True:
        session = None
        try:
            session = connect()
            while True:
                tell(pull(session))
                tries = 0
                time.sleep(every_s)
        except LinkError as error:
            tries += 1
            rest = min(LONGEST_REST_S, max(1.0, backoff_s(tries, random.random())))  # noqa: S311
            complain(f"{error}; trying again in {rest:.0f} s")
            time.sleep(rest)
        finally:
            if session is not None:
                session.close()
