"""An axis of numbers or texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rla_client.web.value_axis import Axis


@pytest.mark.parametrize("values", [["sac", None, "sac"], [0.5, 0.5, None]])
def test_an_axis_of_one_value_names_it_where_its_runs_are(values: list[Any]) -> None:
    axis = Axis(values)
    assert np.nanmin(axis.scaled()) == np.nanmax(axis.scaled()) == 0.5
    assert axis.ruler() == [[0.5, str(values[0])]]
