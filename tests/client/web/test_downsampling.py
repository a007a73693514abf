"""Least and largest values of buckets, where there are many points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.page_runs import write_page_run
from support.panel_curves import asked, table_of, write_rows
from support.written_runs import write_run

from rla_client.web import curve_marks, curve_points, downsampling
from rla_client.web.run_registry import Site


def test_few_points_are_exact(root: Path) -> None:
    for number in range(2):
        index = write_run(root, number=number)
        write_rows(
            root,
            index,
            table_of(range(0, 50, number + 1), [step**2 + number for step in range(0, 50, number + 1)]),
        )
    head, xs, series = asked(Site([root]))
    assert head["kind"] == "exact"
    assert xs.tolist() == list(range(50))
    assert series[0].tolist() == [step**2 for step in range(50)]
    assert series[1][::2].tolist() == [step**2 + 1 for step in range(0, 50, 2)]
    assert np.isnan(series[1][1::2]).all()
    assert head["cursors"] == {"0": 50, "1": 25}


@pytest.mark.parametrize("seed", range(20))
def test_many_points_keep_least_and_largest_of_each_bucket(seed: int) -> None:
    random = np.random.default_rng(seed)
    ys, width = random.normal(size=random.integers(400, 600)).tolist(), int(random.integers(16, 60))
    curve = curve_points.Curve(None, np.arange(len(ys), dtype=float), np.array(ys), np.empty((2, 0)), len(ys))  # type: ignore[arg-type]
    edges = curve_marks.bucket_edges(0.0, len(ys) - 1.0, log=False, width=width)
    series = downsampling._buckets(curve, downsampling._places(curve.xs, edges, {}), 2 * width)
    assert len(series) == 2 * width
    for bucket in range(width):
        last = bucket == width - 1
        inside = [y for x, y in enumerate(ys) if edges[bucket] <= x and (last or x < edges[bucket + 1])]
        pair = series[2 * bucket : 2 * bucket + 2].tolist()
        assert sorted(pair) == [min(inside), max(inside)]


def test_many_curves_have_fewer_buckets_and_keep_their_extremes() -> None:
    xs = np.arange(5000.0)
    ys = [np.sin(xs / 100 + number) for number in range(500)]
    ys[77][3333], ys[78][4444] = 9.0, -9.0
    parts = [curve_points.Curve(None, xs, one, np.empty((2, 0)), len(xs)) for one in ys]  # type: ignore[arg-type]
    parts[499].xs = xs + 0.5  # not the x of the others
    kind, at, series = downsampling._thinned(parts, (0.0, 5000.0, False), 1000)
    assert (kind, len(at)) == ("buckets", 2 * downsampling.LEAST_BUCKETS)
    assert [(one.min(), one.max()) for one in series] == [(one.min(), one.max()) for one in ys]
    assert abs(at[np.nanargmax(series[77])] - 3333) < 25 > abs(at[np.nanargmin(series[78])] - 4444)


def test_a_spike_of_one_row_among_many_is_seen(root: Path) -> None:
    ys = np.zeros(100_000)
    ys[77_777] = 5.0
    write_rows(root, write_run(root), table_of(range(100_000), ys))
    head, xs, series = asked(Site([root]), width=200)
    assert head["kind"] == "buckets"
    assert len(xs) == 400
    assert np.nanmax(series[0]) == 5.0
    at = xs[np.nanargmax(series[0])]
    assert abs(at - 77_777) <= 100_000 / 200
    zoomed = asked(Site([root]), width=200, range=[77_700, 77_800])
    assert zoomed[0]["kind"] == "exact"
    assert zoomed[1].tolist() == list(range(77_699, 77_802))
    assert zoomed[2][0].tolist() == ys[77_699:77_802].tolist()


def test_a_logarithmic_x_has_buckets_of_equal_width_there(root: Path) -> None:
    steps = np.arange(20_000)
    write_rows(root, write_run(root), table_of(steps, steps))
    _, xs, _ = asked(Site([root]), log=True, width=100)
    assert xs[0] >= 1
    ratios = np.log(xs[2::2]) - np.log(xs[:-2:2])
    assert ratios[10:].max() / ratios[10:].min() < 1.2


def test_smoothed_as_rla_plot_does(root: Path) -> None:
    from rla_client.plot.smoothing import smooth

    ys = np.random.default_rng(0).normal(size=300)
    write_rows(root, write_run(root), table_of(range(300), ys))
    head, xs, series = asked(Site([root]), smooth=7, width=200)
    smoothed, behind = (one[~np.isnan(one)] for one in series)
    assert head["raw"]
    assert len(smoothed) == 200
    expected = smooth((np.arange(300.0), ys), np.linspace(0, 299, 200), 7)
    np.testing.assert_allclose(smoothed, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(behind, ys, rtol=1e-5)
    assert xs[~np.isnan(series[1])].tolist() == list(range(300))


def test_behind_many_smoothed_curves_there_are_no_others(root: Path) -> None:
    for number in range(downsampling.RAW_RUNS + 1):
        write_page_run(root, number)
    head, _, series = asked(Site([root]), smooth=7)
    assert not head["raw"]
    assert len(series) == downsampling.RAW_RUNS + 1


def test_of_several_values_at_one_x_none_is_lost(root: Path) -> None:
    ys = np.zeros(1000)
    ys[503] = 1e6
    write_rows(root, write_run(root), table_of(np.arange(1000) // 10, ys))
    _, _, series = asked(Site([root]))
    assert np.nanmax(series[0]) == 1e6
    assert np.nanmin(series[0]) == 0
