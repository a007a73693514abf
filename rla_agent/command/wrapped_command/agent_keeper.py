"""Agent that serves while a command runs.

One that ends meanwhile (out of memory, or that of another job that ended) is started again; an agent that was
started here, or by the command's processes, is stopped at the end.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from rla_agent.service.lock_holder import read_holder
from rla_agent.service.start_detached import start_detached
from rla_agent.service.stop_agent import stop_agent
from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.writer_liveness import process_start

START_AGAIN_S = 5.0  # between starts of an agent that does not stay
SETTLE_S = 0.05
RUN_FILE_WAIT_S = 5.0


class AgentKeeper:
    """Keeps an agent running while the command runs."""

    def __init__(self, places: Places, config: Path | None) -> None:
        """Start one if none serves; without one, rows wait in the spool."""
        self._places = places
        self._config = config
        self._started = False
        self._owner = f"{os.getpid()} {process_start(os.getpid())}"
        os.environ[OWNER_VARIABLE] = self._owner  # also of an agent that the command's processes start
        self._next_start = time.monotonic() + START_AGAIN_S
        try:
            places.create()
            self._started = start_detached(places, config)
        except RlaError as error:
            sys.stderr.write(f"rla-agent run: {error}\nrows are kept in the spool {places.spool}\n")

    def look(self, *, at_once: bool = False) -> None:
        """Start another agent where none runs any more, `at_once` also shortly after the last start.

        It does not wait for it, and honours `rla-agent stop`.
        """
        now = time.monotonic()
        if (now < self._next_start and not at_once) or agent_alive(self._places):
            return
        self._next_start = now + START_AGAIN_S
        self._started |= start_agent(
            self._places, self._config, password_variables([self._config] if self._config else [])
        )

    def serves(self, deadline: float) -> bool:
        """Whether an agent serves now; else one is started and awaited until a moment."""
        if time.monotonic() < deadline and not agent_alive(self._places):
            self.look(at_once=True)
            _await_agent(self._places, min(deadline, time.monotonic() + RUN_FILE_WAIT_S))
        return agent_alive(self._places)

    def stop(self) -> None:
        """Stop the agent if it was started here; one that is just starting ends by itself."""
        if self._started or read_holder(self._places).get("owner") == self._owner:
            with suppress(RlaError):
                stop_agent(self._places)


def _await_agent(places: Places, deadline: float) -> None:
    """Wait for an agent that was just started."""
    while time.monotonic() < deadline and not places.stopped:
        if agent_alive(places) and read_holder(places).get("pid"):
            return
        time.sleep(SETTLE_S)
