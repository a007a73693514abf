"""Garbage on the agent's sockets is counted and dropped, and others are served."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import zmq
from crash.conftest import BareAgent

from rla_agent.control import ask_status
from rla_client.places import Places
from rla_client.protocol import MessageKind, encode_message

CONNECTIONS = 200
MESSAGES = 3000


def test_garbage_connections_and_mutated_messages(
    places: Places, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    chance = random.Random(11)
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    for path in (places.data_socket, places.control_socket):
        for _ in range(CONNECTIONS):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(path))
                try:
                    raw.sendall(chance.randbytes(chance.randrange(400)))
                except OSError:
                    continue
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"ipc://{places.data_socket}")
        good = encode_message(
            MessageKind.DATA, {"s": "0000000000000001-1-0123abcd", "n": 1, "o": 0}, b"x" * 50
        )
        for _ in range(MESSAGES):
            broken = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            dealer.send(bytes(broken[: chance.randrange(len(broken) + 1)]))
        for header in ({"s": 1}, {"s": "../..", "n": 1, "o": 0}, {"s": "x", "n": "y", "o": None}, {}):
            dealer.send(encode_message(MessageKind.FLUSH, header))
            dealer.send(encode_message(MessageKind.DATA, header))
        dealer.send_multipart([b"a", b"b", b"c"])
        assert bare_agent.serves()
        assert ask_status(places)["agent"]["pid"] == bare_agent.process.pid  # type: ignore[union-attr]
