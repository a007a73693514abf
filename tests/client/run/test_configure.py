"""The configuration of a run."""

from __future__ import annotations

from rla_client.run.configure import local_address


def test_address() -> None:
    assert local_address() == "noip" or local_address().count(".") == 3
