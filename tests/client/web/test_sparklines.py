"""Small curves of the likely metric, for the list."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.page_runs import write_page_run

from rla_client.contract.errors import ArgumentError
from rla_client.web.run_registry import Site
from rla_client.web.sparklines import POINTS, sparklines


def test_few_points_of_each_run_the_ends_among_them(root: Path) -> None:
    write_page_run(root, 0, {"return": [float(step) for step in range(1000)]})
    write_page_run(root, 1, {"return": [1.0, math.nan, math.inf, 3.0]})
    write_page_run(root, 2, {})
    site = Site([root])
    site.look_now()
    found = sparklines(site, {"numbers": [0, 1, 2, 99]})
    assert len(found["0"]) == POINTS
    assert (found["0"][0], found["0"][-1]) == (0, 999)
    assert found["1"] == [1.0, 3.0]
    assert "2" not in found


@pytest.mark.parametrize("numbers", [None, "0", [1.5], ["x"]])
def test_what_is_no_list_of_numbers_is_refused(root: Path, numbers: object) -> None:
    write_page_run(root, 0)
    with pytest.raises(ArgumentError):
        sparklines(Site([root]), {"numbers": numbers})
