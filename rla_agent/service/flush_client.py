"""Flush requests to the agent that serves a spool."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from rla_agent.model.records import Position
from rla_client.contract.agent.agent_connection import Dealer
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.protocol import MessageKind, decode_message, encode_message
from rla_client.contract.spool.segments import end_of

ASK_AGAIN_S = 1.0
POLL_S = 0.05


def wait_durable(places: Places, names: Iterable[str], deadline: float | None) -> set[str]:
    """Wait until the serving agent has made the present records of streams durable, with figures and videos.

    Args:
        places: of the agent.
        names: streams in its spool.
        deadline: of the monotonic clock, None for none.

    Returns:
        Streams that are not durable: the deadline passed, the agent ended, or it refused.
    """
    requests = {name: _flush_request(places.spool / name) for name in names}
    open_ones = {name: request for name, request in requests.items() if request is not None}
    refused: set[str] = set()

    def waiting() -> bool:
        return bool(open_ones) and (deadline is None or time.monotonic() < deadline) and agent_alive(places)

    while waiting():
        try:
            with closing(Dealer(places.data_socket)) as dealer:
                asked, unasked = -math.inf, []
                while waiting():
                    if time.monotonic() - asked >= ASK_AGAIN_S:
                        asked, unasked = time.monotonic(), list(open_ones.values())
                    while unasked and dealer.connected(POLL_S) and dealer.send(unasked[-1]):
                        unasked.pop()
                    for name, done in _answers(dealer):
                        if open_ones.pop(name, None) is not None and not done:
                            refused.add(name)
        except OSError:  # it does not listen yet, or ends
            time.sleep(POLL_S)
    return refused | open_ones.keys()


def _flush_request(folder: Path) -> bytes | None:
    """Ask for everything up to the present end of a stream; None when it is gone."""
    number, offset = spool_end(folder)
    if not number:
        return None
    return encode_message(MessageKind.FLUSH, {"s": folder.name, "n": number, "o": offset, "m": True})


def spool_end(folder: Path) -> Position:
    """Where a stream ends now; zeros when it is gone."""
    with suppress(OSError):
        return Position(*end_of(folder))
    return Position(0, 0)


def _answers(dealer: Dealer) -> Iterator[tuple[str, bool]]:
    """Streams that the agent has answered for, and whether they are durable."""
    timeout_s = POLL_S
    while (message := dealer.receive(timeout_s)) is not None:
        timeout_s = 0.0
        with suppress(RemoteProtocolError):
            _, answer = decode_message(message)
            yield str(answer.get("s")), bool(answer.get("done"))
