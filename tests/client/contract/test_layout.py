"""Paths of items."""

from __future__ import annotations

from rla_client.contract.layout import item_path


def test_item_path() -> None:
    assert item_path("log", "t", "2026/11/21/x") == "log/t/2026/11/21/x"
