"""Values of a run at a time-step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_runs import write_page_run

if TYPE_CHECKING:
    from support.page_lab import PageServer


def test_the_latest_value_up_to_the_step_counts(page_server: Callable[..., PageServer], root: Path) -> None:
    columns: dict[str, Sequence[float | str]] = {
        "return": [1.0, 2.0, 3.0],
        "eval": [5.0, "", ""],
        "later": ["", "", 7.0],
        "odd": ["", "nan", "inf"],
    }
    index = write_page_run(root, 0, columns, steps=[0, 100, 200])
    server = page_server(root)

    def at(step: object) -> dict[str, list[object]]:
        found = server.ask("values", {"run": f"0/task/{index}", "step": step})
        return {name: rest for name, *rest in found if name != "timestamp"}

    assert at(100) == {
        "return": [2.0, 100.0],
        "eval": [5.0, 0.0],
        "odd": ["nan", 100.0],
        "time-step": [100.0, 100.0],
    }
    assert at(150.5)["return"] == [2.0, 100.0]
    assert at(1e9)["odd"] == ["inf", 200.0]
    assert at(-1) == {}


@pytest.mark.parametrize("step", [None, "5", True, [], math.inf])
def test_a_step_that_is_none_is_refused(
    page_server: Callable[..., PageServer], root: Path, step: object
) -> None:
    index = write_page_run(root, 0)
    assert "step" in page_server(root).refused("values", {"run": f"0/task/{index}", "step": step})
