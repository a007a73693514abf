"""What waits at the agent's socket while the agent is busy elsewhere takes little memory."""

from __future__ import annotations

from pathlib import Path

import psutil
import zmq
from waiting import wait_until

from rla_agent.wire import RECEIVE_QUEUE, Wire
from rla_client.places import Places
from rla_client.protocol import MessageKind, encode_message

CLIENTS, ROUNDS = 200, 128
MOST_GROWTH = 40 << 20  # 12,800 messages; each of them kept 8 KiB before, with a thousand to a client


def test_a_queue_of_many_clients_is_small_and_bounded(places: Places, tmp_path: Path) -> None:
    wire = Wire(places)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealers = [context.socket(zmq.DEALER) for _ in range(CLIENTS)]
    try:
        for dealer in dealers:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.setsockopt(zmq.SNDHWM, 1)
            dealer.connect(f"ipc://{places.data_socket}")
        message = encode_message(MessageKind.DATA, {"s": "x", "n": 1, "o": 0}, bytes(150))
        before = psutil.Process().memory_info().rss
        for _ in range(ROUNDS):
            for dealer in dealers:
                dealer.poll(1, zmq.POLLOUT)  # one by one, as rows come
                try:
                    dealer.send(message, zmq.NOBLOCK)
                except zmq.Again:
                    continue
        grown = psutil.Process().memory_info().rss - before
        assert grown < MOST_GROWTH, f"{grown >> 20} MiB"
        taken = 0

        def all_taken() -> bool:
            nonlocal taken
            found = len(wire.receive(0.2, 1000))
            taken += found
            return not found

        wait_until(all_taken)
        assert taken >= CLIENTS * RECEIVE_QUEUE / 2
    finally:
        wire.close()
        for dealer in dealers:
            dealer.close()
        context.term()
