"""Search of rank 0's run on the master.

It serves ranks on machines that share nothing else with rank 0's, through this machine's agent. A thread of
its own polls: the agent may have to log in, and rank 0 may open its run much later. Callers get the present
result. It is also stored in this machine's data root, where the other ranks look first.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import FetchError
from rla_client.contract.filesystem.atomic_write import write_atomic

if TYPE_CHECKING:
    from rla_client.config.schema import Config

RELAYED: Final = "relayed"  # field of a description in a data root that is not rank 0's
TIMEOUT_S: Final = 60.0  # for one request: the agent's process waits a third of that for rank 0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # after a request without result
SINCE_STEP_S: Final = 60.0  # ranks of one job send the same request


class MasterMeeting:
    """The request to the master, with its answer.

    Args:
        config: names the master.
        path: of rank 0's description, below this machine's data root.
        since: Unix seconds; an older description is of a former job.
        say: called with the first failure.
    """

    def __init__(self, config: Config, path: Path, since: float, say: Callable[[str], None]) -> None:
        self._config = config
        self._path = path
        self._since = since // SINCE_STEP_S * SINCE_STEP_S
        self._say = say
        self._found: dict[str, Any] | None = None
        self._begun = False

    def look(self) -> dict[str, Any] | None:
        """The present result; the first call begins the search."""
        if not self._begun:
            self._begun = True
            _load_imports()
            with suppress(RuntimeError):  # no more threads: the other channels remain
                threading.Thread(target=self._ask, name="rla-meet", daemon=True).start()
        return self._found

    def _ask(self) -> None:
        from rla_client.stream.fetch import ask_for_fetch  # noqa: PLC0415 - not at import of the package

        config, path = self._config, self._config.path
        question = {"config": str(path), "name": self._path.name, "since": self._since}
        start = partial(
            start_agent, find_places(), path, None if path is None else config.agent.secrets(path)
        )
        pause_s, said = FIRST_PAUSE_S, False
        while self._found is None:
            try:
                answer = ask_for_fetch(
                    {"meet": question},
                    "the master cannot be asked for the run of rank 0",
                    TIMEOUT_S,
                    start=start if config.agent.autostart else None,
                )
            except FetchError as error:
                if not said:
                    self._say(f"has not joined yet; retrying: {error}")
                said = True
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if isinstance(told := answer.get("told"), dict):
                self._found = told
                self._relay(told)
            else:  # each request is a login at the master, and rank 0 may never come
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _relay(self, told: dict[str, Any]) -> None:
        with suppress(OSError):  # so that not all ranks ask at once
            os.makedirs(self._path.parent, exist_ok=True)
            content = json.dumps({**told, RELAYED: True}).encode()
            write_atomic(self._path, content, mode=0o600, durable=False)


def _load_imports() -> None:
    """Import the thread's modules now, so that no fork happens in the middle of an import."""
    import rla_client.stream.fetch  # noqa: F401, PLC0415 - not at import of the package
