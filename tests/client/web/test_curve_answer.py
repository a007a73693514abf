"""The binary answer of curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.panel_curves import asked, decoded, table_of, write_rows
from support.written_runs import write_run

from rla_client.web.curve_answer import encode
from rla_client.web.run_registry import Site


@pytest.mark.parametrize("values", [[1e300, -1e300, 5.0], [1e-300, 2e-300, 1.0]])
def test_sizes_that_float32_cannot_hold(root: Path, values: list[float]) -> None:
    write_rows(root, write_run(root), table_of(range(3), values))
    head, _, series = asked(Site([root]))
    assert head["wide"]
    assert series[0].tolist() == values


@pytest.mark.parametrize(
    "values",
    [[123456789.0, 123456790.0, 123456791.0], [1.7e9, 1.7e9 + 1, 1.7e9 + 2], [100.0, 100.00001, 100.00002]],
)
def test_what_float32_would_round_visibly_is_exact(root: Path, values: list[float]) -> None:
    write_rows(root, write_run(root), table_of(range(3), values))
    assert asked(Site([root]))[2][0].tolist() == values


def test_ordinary_values_take_four_bytes(root: Path) -> None:
    write_rows(root, write_run(root), table_of(range(4), [0.0, 1.1, 250.3, -9.7]))
    write_rows(root, write_run(root, number=1), table_of(range(4), [0.3] * 4))
    assert not asked(Site([root]))[0]["wide"]


def test_a_large_time_step_is_exact(root: Path) -> None:
    steps = [2**40, 2**40 + 1, 2**40 + 2]
    write_rows(root, write_run(root), table_of(steps, [1, 2, 3]))
    assert asked(Site([root]))[1].tolist() == steps


def test_encoded_as_the_module_says() -> None:
    head, xs, series = decoded(encode({"kind": "ä"}, np.array([1.0]), [np.array([2.0]), np.array([np.nan])]))
    assert (head["kind"], xs.tolist(), series[0].tolist()) == ("ä", [1.0], [2.0])
    assert np.isnan(series[1][0])
