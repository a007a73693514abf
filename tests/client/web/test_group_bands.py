"""Bands of groups, as `rla plot` draws them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.panel_curves import asked, table_of, write_rows
from support.written_runs import write_run

from rla_client.contract.errors import UnknownNameError
from rla_client.database.curves.band_kinds import band_kind
from rla_client.plot.bands import curve_band
from rla_client.web.run_registry import Site


@pytest.mark.parametrize("band", ["ci", "iqm", "std", "stderr", "median", "range", "none"])
def test_bands_are_those_of_rla_plot(root: Path, band: str) -> None:
    random = np.random.default_rng(1)
    values: dict[float, list[Any]] = {0.1: [], 0.01: []}
    for number in range(8):
        lr = (0.1, 0.01)[number % 2]
        ys = random.normal(number, 1, 40).round(6)
        values[lr].append(ys)
        write_rows(
            root, write_run(root, number=number, params={"lr": lr, "seed": number}), table_of(range(40), ys)
        )
    head, xs, series = asked(Site([root]), group=["lr"], band=band)
    assert [curve["label"] for curve in head["curves"]] == ["lr=0.01", "lr=0.1"]
    assert xs.tolist() == list(range(40))
    for place, lr in enumerate((0.01, 0.1)):
        expected = curve_band(np.array(values[lr]), band_kind(band))
        for one, other in zip(series[3 * place : 3 * place + 3], expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_groups_whose_runs_are_of_other_lengths_share_one_x(root: Path) -> None:
    for number, rows in enumerate((10, 20, 33, 40)):
        steps = np.arange(rows) * (number + 1)
        write_rows(
            root, write_run(root, number=number, params={"lr": number // 2}), table_of(steps, steps * 2)
        )
    head, xs, series = asked(Site([root]), group=["lr"], band="none")
    assert [one["numbers"] for one in head["curves"]] == [[0, 1], [2, 3]]
    assert (np.diff(xs) > 0).all()
    there = ~np.isnan(series[3])
    np.testing.assert_allclose(series[3][there], 2 * xs[there], rtol=1e-5)


def test_grouped_by_nothing_is_one_group(root: Path) -> None:
    for number in range(3):
        write_run(root, number=number)
    head, _, series = asked(Site([root]), group=[])
    assert [one["label"] for one in head["curves"]] == ["all"]
    assert len(series) == 3


def test_a_group_that_no_run_has_names_the_nearest(root: Path) -> None:
    write_run(root)
    with pytest.raises(UnknownNameError, match="seed"):
        asked(Site([root]), group=["sed"])
