"""Which items are selected."""

from __future__ import annotations

from typing import Any

import pytest

from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.contract.errors import ArgumentError


@pytest.mark.parametrize(
    "wrong", [{"since": "yesterday"}, {"until": "2026-11-21"}, {"kinds": ("logs",)}, {"since": "2026/1/2"}]
)
def test_a_selection_that_would_select_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        ItemSelection(**wrong)
