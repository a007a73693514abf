"""Questions to the agent on its control socket: one question, one answer, plain data both ways."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rla_client.contract.dealer import Dealer
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.protocol import MessageKind, decode_message, encode_message

CONNECT_AGAIN_S = 0.02  # an agent that holds its lock may not listen yet


def ask(
    socket: Path, question: dict[str, Any], timeout_s: float, *, version: int | None = None
) -> dict[str, Any] | None:
    """The agent's answer; None when there is none in time. No thread, and no descriptor afterwards.

    Args:
        socket: the agent's control socket.
        question: `{}` asks for its status.
        timeout_s: for connecting and the answer together.
        version: of the protocol; None: today's.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        with suppress(OSError, RemoteProtocolError), closing(Dealer(socket)) as dealer:
            if dealer.connected(left) and dealer.send(
                encode_message(MessageKind.STATUS, question, version=version)
            ):
                answer = dealer.receive(max(0.0, deadline - time.monotonic()))
                return None if answer is None else decode_message(answer)[1]
        time.sleep(min(CONNECT_AGAIN_S, max(0.0, deadline - time.monotonic())))
    return None
