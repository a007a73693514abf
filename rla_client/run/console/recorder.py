"""Stream of a run's `console.txt`."""

from __future__ import annotations

import os
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Any

from rla_client.code.run_secrets import Secrets
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import CONSOLE, OUTPUT_NAMES
from rla_client.contract.spool.opening import Opening, labelled
from rla_client.contract.spool.protocol import FrameKind, TextTarget, pack
from rla_client.stream.outbox import Outbox

SETTLE_S = 1.0


class Recorder:
    """The `console.txt` of one run: at most `console_max_bytes`, the first half and the last.

    Args:
        run: its opening, secrets and settings, as the training describes it.
    """

    def __init__(self, run: dict[str, Any]) -> None:
        self._opening = Opening.from_fields(run["opening"])
        self._secrets = Secrets(tuple(run["secrets"]))
        self._settings = AgentConfig(**run["settings"])
        self._head_room = self._settings.console_max_bytes - self._settings.console_max_bytes // 2
        self._tail_room = self._settings.console_max_bytes // 2
        self._tail: deque[bytes] = deque()
        self._left_out = 0
        self._outbox: Outbox | None = None

    def add(self, text: str) -> None:
        """Store complete lines."""
        if not text:
            return
        data = self._secrets.verbatim(text).encode("utf-8", "backslashreplace")
        fits = data.rfind(b"\n", 0, self._head_room) + 1
        if fits:
            self._head_room -= fits
            self._put(data[:fits])
        if fits == len(data):
            return
        self._head_room = 0
        self._tail.append(data[fits:])
        self._tail_room -= len(data) - fits
        while self._tail_room < 0:
            first = self._tail.popleft()
            gone = first.find(b"\n", -self._tail_room - 1) + 1 or len(first)
            if gone < len(first):
                self._tail.appendleft(first[gone:])
            self._tail_room += gone
            self._left_out += gone

    def settle(self) -> None:
        """Flush the stream where the agent ends with the training."""
        if self._outbox is not None and shares_our_life():
            self._outbox.flush(SETTLE_S)

    def close(self) -> None:
        """End the stream."""
        if self._left_out:
            self._put(f"[... {self._left_out} bytes left out ...]\n".encode())
        for data in self._tail:
            self._put(data)
        if self._outbox is not None:
            self._outbox.release()

    def _put(self, data: bytes) -> None:
        if self._outbox is None:
            opening = console_opening(self._opening)
            if opening is None:
                return  # the item is gone
            config = None if opening.config is None else Path(opening.config)
            self._outbox = Outbox(find_places(), opening, self._settings, config_path=config)
        self._outbox.put(FrameKind.TEXT, pack([TextTarget.CONSOLE, data.decode()]), time.time())


def console_opening(opening: Opening) -> Opening | None:
    """Opening of a console's stream, which has one output, a new file; None where none can be made."""
    for number in count(1):
        name = labelled(OUTPUT_NAMES[CONSOLE], "" if number == 1 else str(number))
        try:
            path = os.path.join(opening.log_folder, name)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        except OSError:
            break
        return opening._replace(
            primary=False,
            sinks=frozenset((CONSOLE,)),
            names={**opening.names, CONSOLE: name},
            label="",
            continues=None,
        )
    return None
