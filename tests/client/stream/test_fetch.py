"""Deadlines of a fetch."""

from __future__ import annotations

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.stream.fetch import fetch_timeout_s


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_timeout_s() == 600
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", text)
    with pytest.raises(ArgumentError, match="RLA_FETCH_TIMEOUT_S"):
        fetch_timeout_s()
