"""Custom data through exp_manager."""

from __future__ import annotations

from collections import deque

import pytest

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.manager import ExpManager


def test_custom_data_grows_replaces_and_forgets() -> None:
    manager = ExpManager()
    for value in range(5):
        manager.add_custom_data("list", value)
        manager.add_custom_data("last3", value, dtype=deque, max_len=3)
        manager.add_custom_data("number", value, dtype=int)
    assert manager.get_custom_data("list") == [0, 1, 2, 3, 4]
    assert manager.get_custom_data("last3") == deque([2, 3, 4], maxlen=3)
    assert manager.get_custom_data("number") == 4
    manager.add_custom_data("list", 7, mode="replace")
    assert manager.get_custom_data("list") == 7
    manager.clear_custom_data("list")
    assert manager.get_custom_data("list") is None
    assert manager.get_custom_data("never") is None


def test_wrong_custom_data_says_what_is_wrong() -> None:
    manager = ExpManager()
    with pytest.raises(ArgumentError, match="max_len"):
        manager.add_custom_data("d", 1, dtype=deque)
    manager.custom_data["old"] = [1, 2, 3]  # archives of RLA give lists
    manager.add_custom_data("old", 4, dtype=deque)
    assert manager.get_custom_data("old") == [1, 2, 3, 4]
    manager.add_custom_data("old", 5, dtype=deque, max_len=3)
    assert manager.get_custom_data("old") == deque([3, 4, 5], maxlen=3)
    with pytest.raises(ArgumentError, match="append"):
        manager.add_custom_data("d", 1, mode="prepend")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no custom data"):
        manager.print_custom_data("none")


def test_print_custom_data_records_the_mean(manager: ExpManager) -> None:
    for value in (1.0, 2.0, 6.0):
        manager.add_custom_data("r", value)
    manager.print_custom_data("r", prefix="mean/")
    assert logger.dump_tabular()["mean/r"] == 3.0
