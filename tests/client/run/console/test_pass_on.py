"""Output that is passed on."""

from __future__ import annotations

import os
import threading

from rla_client.run.console.pass_on import pass_on, ready


def test_a_reader_that_does_not_wait_gets_all_of_it() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = os.urandom(1 << 18)
    passing = threading.Thread(target=pass_on, args=(data, writing))
    passing.start()
    found = b""
    while len(found) < len(data):
        assert ready([reading], 30.0) == [reading]
        found += os.read(reading, 1000)
    passing.join()
    assert found == data
    assert ready([reading], 0.0) == []
    os.close(reading)
    pass_on(data, writing)  # nobody reads: dropped
    os.close(writing)
