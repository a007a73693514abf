"""Messenger of an outbox to the agent.

Sending never waits, and nothing depends on it: records are in the spool. A connection belongs to the thread
that holds the outbox's lock; waiting for an answer uses one of its own. Where no agent answers, one is
started.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rla_client.contract.agent.agent_connection import Dealer
from rla_client.contract.agent.agent_environment import tight_limits
from rla_client.contract.agent.agent_process import agent_alive, agent_record
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.agent.systemd_unit import installed_unit
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.protocol import PROTOCOL_VERSION, MessageKind, decode_message, encode_message
from rla_client.contract.text.number_parsing import parse_uint
from rla_client.stream.rare_warnings import warn_rarely

START_INTERVAL_S = 60.0  # between looks for an agent when records are refused, and between starts of one
START_WAIT_S = 10.0  # that an agent may take to serve; afterwards it is not awaited
FLUSH_ASK_AGAIN_S = 0.25
LOOK_INTERVAL_S = 1.0  # between checks of the agent's address while sends are refused
CONNECT_INTERVAL_S = 0.05  # between attempts
REFUSED_PAUSE_S = 0.010  # a refused send costs 2.3 us; at most a hundred a second


class Flushed(NamedTuple):
    """The agent's answer to a flush.

    Attributes:
        done: everything before the position is durable.
        since: start of the answering agent, whose counts begin at 0 with each start.
        media: number of figures and videos of the stream that it could not make.
        others: number of files and checkpoints that it could not store.
    """

    done: bool
    since: float = 0.0
    media: int = 0
    others: int = 0

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Flushed:
        """Parse an answer.

        Raises:
            TypeError, ValueError, OverflowError: it is none.
        """
        media, others = (parse_uint(fields.get(name) or 0) for name in ("media", "others"))
        return cls(bool(fields.get("done")), float(fields.get("since") or 0.0), media, others)


NOT_FLUSHED = Flushed(done=False)


class Messenger:
    """An outbox's connection to the agent of this machine.

    Args:
        places: where its sockets are.
        autostart: whether one may be started from here.
        config_path: handed to it then.
        secrets: returns the environment variables that it needs for this configuration.
    """

    def __init__(
        self,
        places: Places,
        *,
        autostart: bool,
        config_path: Path | None,
        secrets: Callable[[Path], Mapping[str, str]] | None = None,
    ) -> None:
        self._places = places
        self._autostart = autostart
        self._config_path = config_path
        self._secrets = secrets
        self._looked = self._started = float("-inf")
        self._start_refused = False
        self._warned: dict[str, float] = {}
        self._next_look = self._next_connect = 0.0
        self._path: Path | None = None  # path to which the dealer is connected
        self._dealer: Dealer | None = None

    def hint(self, stream: str, number: int, size: int) -> bool:
        """Send, without waiting, that a stream has `size` bytes in segment `number`; False if refused."""
        try:
            dealer = self._dealer or self._connect()
            header = {"s": stream, "n": number, "o": size}
            if dealer is not None and dealer.send(encode_message(MessageKind.HINT, header)):
                return True
        except OSError:  # no agent serves there any more, or our descriptor was closed
            self.close()
        self._follow_agent()
        return False

    def _follow_agent(self) -> None:
        """Close the connection when the next agent serves under another path."""
        now = time.monotonic()
        if self._dealer is None or now < self._next_look:
            return
        self._next_look = now + LOOK_INTERVAL_S
        if self._places.data_socket != self._path:
            self.close()

    def _connect(self) -> Dealer | None:
        now = time.monotonic()
        if now < self._next_connect:
            return None
        self._next_connect = now + CONNECT_INTERVAL_S
        self._path = self._places.data_socket
        self._dealer = Dealer(self._path)
        self._warn_of_older_agent()
        return self._dealer

    def _warn_of_older_agent(self) -> None:
        """Warn once of an older agent that cannot read this release's records."""
        record = agent_record(self._places)
        reads = record.get("protocol", 1)
        if record and isinstance(reads, int) and reads < PROTOCOL_VERSION and agent_alive(self._places):
            import logging  # noqa: PLC0415 - not at import of the package

            logging.getLogger("rla_client").warning(
                "the agent that runs is of an older release and cannot read this one's records; "
                "they wait in %s. Start the new one: rla-agent restart",
                self._places.spool,
            )

    def close(self) -> None:
        """Close the connection, in a forked child its copy; unsent records stay in the spool."""
        dealer, self._dealer = self._dealer, None
        if dealer is not None:
            dealer.close()

    def start_agent_if_none(self, *, at_once: bool = False) -> bool:
        """Start an agent when none serves, at most once a minute; where that is not allowed, warn once.

        A thread does it: a shell takes milliseconds, a service manager that hangs takes seconds.

        Args:
            at_once: check now, regardless of the last check.

        Returns:
            False when none serves and none is about to.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < START_INTERVAL_S:
            return True
        self._looked = now
        if self._autostart:
            _load_imports()
        if agent_alive(self._places):
            return True
        if not self._autostart or self._places.stopped:
            self._advise()
            return False
        if now - self._started < START_INTERVAL_S:
            return not self._start_refused and now - self._started < START_WAIT_S
        self._started, self._start_refused = now, False
        self._warn_of_limits()
        thread = threading.Thread(target=self._start_agent, name="rla-start", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread available
            self._start_refused = True
            self._advise()
        return not self._start_refused

    def _start_agent(self) -> None:
        path, secrets = self._config_path, self._secrets
        if not start_agent(self._places, path, secrets(path) if secrets and path else None):
            self._start_refused = True
            self._advise()

    def _warn_of_limits(self) -> None:
        if (limits := tight_limits()) and installed_unit() is None:
            advice = (
                "the agent that is started here has the limits of this process: %s. Start one without them"
            )
            warn_rarely(self._warned, "limits", advice + ": rla-agent start --detach", "; ".join(limits))

    def _advise(self) -> None:
        advice = "no agent runs; records wait in %s. Start one: rla-agent start --detach"
        warn_rarely(self._warned, "agent", advice, self._places.spool)

    def await_flushed(self, header: dict[str, Any], deadline: float | None) -> Flushed:
        """Poll the agent until everything before a position is durable.

        Args:
            header: of stream and position.
            deadline: monotonic; None waits for ever.

        Returns:
            Not `done` after the deadline, or when no agent runs and none may be started.
        """
        wait_s = FLUSH_ASK_AGAIN_S
        while wait_s > 0:
            path = self._places.data_socket
            try:
                with closing(Dealer(path)) as dealer:
                    done = self._ask_until(dealer, path, header, deadline)
                if done is not None:
                    return done
            except OSError:  # no agent serves there (yet), or there are too few descriptors
                if not self.start_agent_if_none(at_once=True):
                    return NOT_FLUSHED
                wait_s = _wait_s(deadline)
                time.sleep(min(wait_s, CONNECT_INTERVAL_S))
        return NOT_FLUSHED

    def _ask_until(
        self, dealer: Dealer, path: Path, header: dict[str, Any], deadline: float | None
    ) -> Flushed | None:
        """As `await_flushed`; None when the agent serves elsewhere than at `path`.

        Raises:
            OSError: the connection is gone.
        """
        request = encode_message(MessageKind.FLUSH, header)
        while wait_s := _wait_s(deadline):
            connected = dealer.connected(wait_s)
            if connected:
                dealer.send(request)
            if connected and (answer := dealer.receive(_wait_s(deadline))) is not None:
                with suppress(RemoteProtocolError, TypeError, ValueError, OverflowError):
                    kind, fields = decode_message(answer)
                    if kind == MessageKind.FLUSHED and fields.get("s") == header["s"]:
                        return Flushed.from_fields(fields)
            elif not self.start_agent_if_none(at_once=True):
                return NOT_FLUSHED
            elif not connected and self._places.data_socket != path:
                return None
        return NOT_FLUSHED


def _wait_s(deadline: float | None) -> float:
    """Seconds until the next request, 0 when the deadline has passed."""
    left = FLUSH_ASK_AGAIN_S if deadline is None else min(deadline - time.monotonic(), FLUSH_ASK_AGAIN_S)
    return max(0.0, left)


def _load_imports() -> None:
    """Import the modules for starting an agent now, so that no fork happens in the middle of an import.

    The child would wait forever for a module that only a thread of the parent is loading.
    """
    import logging  # noqa: F401, PLC0415 - not at import of the package
    import shutil  # noqa: F401, PLC0415
    import subprocess  # noqa: F401, PLC0415
