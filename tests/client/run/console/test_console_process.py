"""Threads of the process behind `console=True`."""

from __future__ import annotations

import threading

import pytest

from rla_client.run.console import console_process
from rla_client.run.console.console_process import OutputPiece, OutputWorker


def test_what_is_too_much_is_left_out_but_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_process, "BACKLOG_BYTES", 1000)
    seen: list[bytes] = []
    may_go = threading.Event()

    def take(piece: OutputPiece) -> None:
        may_go.wait()
        seen.append(piece.data)

    worker = OutputWorker(take)
    for number in range(30):
        worker.put(OutputPiece(0, b"%03d " % number * 25))
        if number == 2:
            worker.put(lambda: seen.append(b"called"))
    worker.put(None)
    worker.start()
    may_go.set()
    worker.join()
    notes = [at for at, data in enumerate(seen) if b"bytes left out" in data]
    assert notes[0] == 0, "in the place of what it speaks of"
    assert b"called" in seen
    kept = [data for data in seen if data[:3].isdigit()]
    assert kept[-1].startswith(b"029")
    left_out = sum(int(data.split()[1]) for data in seen if b"bytes left out" in data)
    assert left_out + sum(map(len, kept)) == 30 * 100
