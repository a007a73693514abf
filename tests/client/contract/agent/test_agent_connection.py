"""One connection to the agent, over a real socket."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rla_client.contract.agent.agent_connection import GREETING, GREETING_BYTES, READY, Dealer

ANSWER = b"\x00\x06answer"


def test_an_answer_of_a_peer_that_has_ended_since(tmp_path: Path) -> None:
    """It lay in the socket before the end did."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer_and_end() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(GREETING + READY)
                received = b""
                while len(received) < GREETING_BYTES + len(READY) + len(b"\x00\x08question"):
                    received += peer.recv(1024)
                peer.sendall(ANSWER)

        server = threading.Thread(target=answer_and_end)
        server.start()
        with closing(Dealer(path)) as dealer:
            assert dealer.connected(10.0)
            assert dealer.send(b"question")
            server.join()
            assert dealer.receive(10.0) == b"answer"
            with pytest.raises(OSError, match="reset"):
                dealer.receive(10.0)
