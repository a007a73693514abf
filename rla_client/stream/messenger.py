"""What a training process asks of the agent: to take records in, to be there, to fetch files from the master.

Sending never waits, and nothing depends on it: records are in the spool. A connection belongs to the
thread that holds the outbox's lock; waiting for an answer uses one of its own. Where no agent answers,
one is started.

Pruned checkpoints, and runs begun on another machine, come from the master. The client never speaks SSH;
it asks the agent on its control socket again and again until the answer is there or the deadline has
passed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rla_client.contract.agent_process import (
    Dealer,
    agent_alive,
    agent_record,
    ask,
    installed_unit,
    start_agent,
    tight_limits,
)
from rla_client.contract.errors import ArgumentError, FetchError, RemoteProtocolError, StillWrittenError
from rla_client.contract.parsing import whole
from rla_client.contract.paths import Places, find_places
from rla_client.contract.protocol import PROTOCOL_VERSION, MessageKind, decode_message, encode_message

START_INTERVAL_S = 60.0  # between looks for an agent when records are refused, and between starts of one
START_WAIT_S = 10.0  # that an agent may take to serve; one that has not come by then is not waited for
FLUSH_ASK_AGAIN_S = 0.25
LOOK_INTERVAL_S = 1.0  # at where the agent serves, while it does not take what is sent
CONNECT_INTERVAL_S = 0.05  # between attempts
REFUSED_PAUSE_S = 0.010  # a refused send costs 2.3 us; at most a hundred a second
WARN_INTERVAL_S = 60.0
TIMEOUT_VARIABLE = "RLA_FETCH_TIMEOUT_S"
FETCH_TIMEOUT_S = 600.0  # 60 GB at 100 MB/s
AGENT_S = 10.0  # for the agent to come up and answer at all
ANSWER_S = 2.0  # for one question; then it is asked again
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 0.5  # between two questions


class Flushed(NamedTuple):
    """The agent's answer to a flush.

    Attributes:
        done: everything before the position is durable.
        since: of the answering agent, whose count begins anew with each of its lives.
        media: figures and videos of the stream that it could not make, so far.
        others: likewise files and checkpoints that it could not keep.
    """

    done: bool
    since: float = 0.0
    media: int = 0
    others: int = 0

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Flushed:
        """Read an answer; earlier releases count nothing.

        Raises:
            TypeError, ValueError, OverflowError: it is none.
        """
        media, others = (whole(fields.get(name) or 0) for name in ("media", "others"))
        return cls(bool(fields.get("done")), float(fields.get("since") or 0.0), media, others)


NOT_FLUSHED = Flushed(done=False)


class Messenger:
    """The agent of this machine, seen from one outbox.

    Args:
        places: where its sockets are.
        autostart: whether one may be started from here.
        config_path: handed to it then.
        secrets: gives the environment variables that it needs for this configuration.
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
        self._path: Path | None = None  # that the dealer is connected to
        self._dealer: Dealer | None = None

    def send(self, header: dict[str, Any], body: bytes) -> bool:
        """Send segment bytes without waiting; False if they were refused."""
        try:
            dealer = self._dealer or self._connect()
            if dealer is not None and dealer.send(encode_message(MessageKind.DATA, header, body)):
                return True
        except OSError:  # nobody serves there any more, or somebody closed our descriptor
            self.close()
        self._follow_agent()
        return False

    def _follow_agent(self) -> None:
        """Let go of a connection when the next agent serves under another path."""
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
        """Say once that an agent serves which cannot read this release's records."""
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
        """Let go of the connection; what was not sent stays in the spool. In a forked child: of its copy."""
        dealer, self._dealer = self._dealer, None
        if dealer is not None:
            dealer.close()

    def start_agent_if_none(self, *, at_once: bool = False) -> bool:
        """Start an agent when none serves, at most once a minute; else say once how to.

        A thread does it: a shell takes milliseconds, a service manager that hangs takes seconds.

        Args:
            at_once: look now, however short ago the last look was.

        Returns:
            False when it was found that none serves and none is about to.
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
        except RuntimeError:  # no more threads
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
        """Ask until everything before a position is durable.

        Args:
            header: names stream and position.
            deadline: monotonic; None waits for ever.

        Returns:
            Not done when that did not happen in time, or no agent runs and none may be started.
        """
        wait_s = FLUSH_ASK_AGAIN_S
        while wait_s > 0:
            path = self._places.data_socket
            try:
                with closing(Dealer(path)) as dealer:
                    done = self._ask_until(dealer, path, header, deadline)
                if done is not None:
                    return done
            except OSError:  # nobody serves there (yet), or there are too few descriptors
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
                    kind, fields, _body = decode_message(answer)
                    if kind == MessageKind.FLUSHED and fields.get("s") == header["s"]:
                        return Flushed.from_fields(fields)
            elif not self.start_agent_if_none(at_once=True):
                return NOT_FLUSHED
            elif not connected and self._places.data_socket != path:
                return None
        return NOT_FLUSHED


def _wait_s(deadline: float | None) -> float:
    """Seconds until it is time to ask again, 0 when the deadline has passed."""
    left = FLUSH_ASK_AGAIN_S if deadline is None else min(deadline - time.monotonic(), FLUSH_ASK_AGAIN_S)
    return max(0.0, left)


def _load_imports() -> None:
    """Import what starting an agent needs, so that a fork never meets a thread in the middle of that.

    The child would wait for ever for a module that only a thread of the parent is loading.
    """
    import logging  # noqa: F401, PLC0415 - not at import of the package
    import shutil  # noqa: F401, PLC0415
    import subprocess  # noqa: F401, PLC0415


def fetch_timeout_s() -> float:
    """Seconds that a fetch may take: `RLA_FETCH_TIMEOUT_S`, else ten minutes.

    Raises:
        ArgumentError: the variable holds no number of seconds.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        found = float(text) if text else FETCH_TIMEOUT_S
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise ArgumentError(f"{TIMEOUT_VARIABLE} must be a number of seconds above 0, not {text!r}")
    return found


def bring_back(path: Path) -> None:
    """Fetch a pruned file; on return it is here, whole.

    Args:
        path: where it was.

    Raises:
        FetchError: no agent, no master, no such file there, or not in time.
    """
    absolute = Path(os.path.abspath(path))
    question = {"folder": str(absolute.parent), "name": absolute.name, "config": None}
    what = f"{path.name} was pruned here and must come from the master"
    ask_agent(question, what, fetch_timeout_s(), start=partial(start_agent, find_places()))


def ask_agent(
    question: dict[str, Any], what: str, timeout_s: float, *, start: Callable[[], bool] | None
) -> dict[str, Any]:
    """Have the agent fetch something.

    Args:
        question: for the agent's fetching process.
        what: the beginning of an error's message.
        timeout_s: deadline.
        start: starts an agent where none runs; None: none may be started.

    Returns:
        The process's answer.

    Raises:
        StillWrittenError: the run that was asked for is being written elsewhere.
        FetchError: see `bring_back`.
    """
    places = find_places()
    if not agent_alive(places) and not (start is not None and start()):
        raise FetchError(f"{what}, but no agent is running here; start one: rla-agent start --detach")
    began = heard = time.monotonic()
    wait = FIRST_WAIT_S
    while True:
        left = began + timeout_s - time.monotonic()
        answer = ask(places.control_socket, {"fetch": question}, max(0.1, min(ANSWER_S, left)))
        now = time.monotonic()
        if answer is not None and "fetch" in answer:
            heard = now
            if answer["fetch"] == "done":
                return answer
            if answer["fetch"] == "failed":
                kind = StillWrittenError if answer.get("still_written") else FetchError
                raise kind(f"{what}: {answer.get('error')}")
        if now - heard > AGENT_S:
            raise FetchError(f"{what}, but the agent does not answer; see: rla-agent status")
        if now - began > timeout_s:
            raise FetchError(
                f"{what}, which is not done after {timeout_s:g} s; it continues where it stopped when it is "
                f"asked for again ({TIMEOUT_VARIABLE} sets the limit)"
            )
        time.sleep(min(wait, max(0.0, left)))
        wait = min(2 * wait, LONGEST_WAIT_S)


def warn_rarely(said: dict[str, float], what: str, message: str, *arguments: object) -> None:
    """Warn unless the same was said within WARN_INTERVAL_S.

    Args:
        said: when each kind of warning was given last, monotonic; updated here.
        what: the kind.
        message: with the placeholders of `logging`.
        arguments: for it.
    """
    now = time.monotonic()
    if now - said.get(what, float("-inf")) >= WARN_INTERVAL_S:
        try:
            import logging  # noqa: PLC0415 - not at import of the package
        except (ImportError, OSError):  # no descriptors left to read it by
            return
        said[what] = now
        logging.getLogger("rla_client").warning(message, *arguments)
