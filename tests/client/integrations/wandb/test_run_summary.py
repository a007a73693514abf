"""The summary, as wandb's scripts set it."""

from __future__ import annotations

from typing import Any

import pytest

from rla_client.integrations.wandb.run_summary import Summary


def test_parts_of_the_summary_can_be_set() -> None:
    class Told(Summary):
        def changed(self, values: dict[str, Any]) -> None:
            told.update(values)

    told: dict[str, Any] = {}
    summary = Told({"a.b.max": 1, "a.min": 2})
    summary["a"]["b"]["max"] = 5
    assert (summary["a.b.max"], summary["a"]["b"]["max"], summary["a"]["min"]) == (5, 5, 2)
    assert told == {"a.b.max": 5}
    with pytest.raises(KeyError):
        summary["a"]["c"]
