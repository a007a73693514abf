"""What waits at the agent's socket while the agent is busy elsewhere takes little memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq
from support.waiting import wait_until

from rla_agent.sockets import RECEIVE_QUEUE, Sockets
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import MessageKind, encode_message

CLIENTS, ROUNDS = 200, 64
LARGE = 1 << 16  # so that the kernel holds few of them
MOST_GROWTH = 40 << 20  # 12,800 messages; each of them kept 8 KiB before, with a thousand to a client


@pytest.mark.slow
def test_a_queue_of_many_clients_is_small_and_bounded(places: Places, tmp_path: Path) -> None:
    wire = Sockets(places)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealers = [context.socket(zmq.DEALER) for _ in range(CLIENTS)]
    try:
        for dealer in dealers:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.setsockopt(zmq.SNDHWM, 1)
            dealer.connect(f"ipc://{places.data_socket}")
        message = encode_message(MessageKind.HINT, {"s": "x" * 150, "n": 1, "o": 0})
        before = psutil.Process().memory_info().rss
        sent = 0

        def is_full() -> bool:
            """One more message of each client, as rows come; whether the queue holds its share."""
            nonlocal sent
            for dealer in dealers:
                dealer.poll(1, zmq.POLLOUT)
                with suppress(zmq.Again):
                    dealer.send(message, zmq.NOBLOCK)
                    sent += 1
            return sent >= CLIENTS * RECEIVE_QUEUE

        wait_until(is_full)
        for _ in range(ROUNDS):
            is_full()
        grown = psutil.Process().memory_info().rss - before
        assert grown < MOST_GROWTH, f"{grown >> 20} MiB"
        taken = 0

        def all_taken() -> bool:
            nonlocal taken
            taken += len(wire.receive(0.2, 1000))
            return taken == sent

        wait_until(all_taken, what=lambda: f"{sent} messages, {taken} so far")
    finally:
        wire.close()
        for dealer in dealers:
            dealer.close()
        context.term()


def test_a_client_whose_queue_is_full_is_refused(places: Places) -> None:
    wire = Sockets(places)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    try:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.SNDHWM, 1)
        dealer.connect(f"ipc://{places.data_socket}")
        message = encode_message(MessageKind.HINT, {"s": "x" * LARGE, "n": 1, "o": 0})
        sent = 0
        while sent < 10 * RECEIVE_QUEUE and dealer.poll(1000, zmq.POLLOUT):
            dealer.send(message, zmq.NOBLOCK)
            sent += 1
        assert sent < 2 * RECEIVE_QUEUE, "the rest is a queue of its own, and what lies in the kernel"
        taken = 0
        while taken < sent:
            taken += len(wire.receive(60.0, 1000))
    finally:
        wire.close()
        dealer.close()
        context.term()
