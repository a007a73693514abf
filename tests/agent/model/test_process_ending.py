"""How a command ended, in a shell's words."""

from __future__ import annotations

from rla_agent.model.process_ending import Ending


def test_endings() -> None:
    assert Ending.of(0x0300) == Ending(3, None)
    assert Ending.of(9) == Ending(None, 9)
    assert (Ending(3, None).status, Ending(None, 15).status) == (3, 143)
    assert [e.words for e in (Ending(3, None), Ending(None, 15), Ending(None, 250))] == [
        "exit code 3",
        "killed by SIGTERM",
        "killed by signal 250",
    ]
