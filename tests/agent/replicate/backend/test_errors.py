"""What errors of a master say."""

from __future__ import annotations

from rla_agent.replicate.backend.errors import LinkError, MissingError, TargetError


def test_no_message_calls_the_masters_folder_root() -> None:
    assert str(LinkError("look at", b"", "it is empty")) == "look at the remote root: it is empty"
    assert str(LinkError("connect", b"", "h:22: refused")) == "connect: h:22: refused"
    assert str(MissingError("list", b"log", "not there")) == "list log: not there"
    assert "(root)" not in str(TargetError("list", b"", "x"))
