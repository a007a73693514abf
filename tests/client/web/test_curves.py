"""Curves of a panel: exact while they are few, by least and largest value where they are many."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.page_runs import write_page_run
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.database.curves.band_kinds import band_kind
from rla_client.database.database import Database
from rla_client.plot.bands import curve_band
from rla_client.web import curves, panel_export
from rla_client.web.curve_answer import encode
from rla_client.web.panel_export import as_csv
from rla_client.web.run_list import metric_names
from rla_client.web.run_registry import Site


def decoded(body: bytes) -> tuple[dict[str, Any], np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    """As api.js and panels.js read an answer."""
    (length,) = struct.unpack("<I", body[:4])
    head = json.loads(body[8 : 8 + length])
    start = 8 + -(-length // 8) * 8
    xs = np.frombuffer(body, "<f8", head["points"], start)
    kind, size = ("<f8", 8) if head["wide"] else ("<f4", 4)
    begin = start + 8 * head["points"]
    series = [
        np.frombuffer(body, kind, head["points"], begin + place * size * head["points"])
        for place in range(head["series"])
    ]
    return head, xs, series


def asked(site: Site, **what: Any) -> tuple[dict[str, Any], np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    site.look_now()
    runs = [entry.number for entry in site.entries()]
    answer = curves.curves(site, {"runs": runs, "metric": "return", **what})
    return decoded(bytes(answer.body))


def write_rows(root: Path, index: str, text: str, table: str = "task") -> None:
    (root / "log" / table / index / "progress.csv").write_text(text)


def table_of(xs: Any, ys: Any) -> str:
    return "return,time-step,timestamp\n" + "".join(
        f"{y!r},{x!r},{1000.0 + 2 * x!r}\n" for x, y in zip(map(float, xs), map(float, ys), strict=True)
    )


def test_ranks_of_runs_as_their_mean_or_one_alone(root: Path) -> None:
    index = write_run(root)
    write_rows(root, index, table_of([0, 1, 2], [1.0, 2.0, 3.0]))
    (root / "log" / "task" / index / "progress.rank1.csv").write_text(table_of([0, 1], [3.0, 4.0]))
    site = Site([root])
    head, xs, series = asked(site, ranks="mean")
    assert (xs.tolist(), series[0].tolist()) == ([0.0, 1.0, 2.0], [2.0, 3.0, 3.0])
    assert head["said"] == (
        "mean of 2 ranks at each time-step; return: 1 of 3 points lack ranks (as few as 1 of 2)"
    )
    assert head["cursors"] == {"0": None}, "rows of a mean are no rows of a table"
    head, _, series = asked(site, ranks="1")
    assert (head["said"], series[0].tolist()) == ("rank 1 alone", [3.0, 4.0])
    assert asked(site, ranks="")[2][0].tolist() == [1.0, 2.0, 3.0]
    assert asked(site, ranks="7")[0]["lacking"] == 1
    command = panel_export.command(site, {"runs": [0], "metric": "return", "ranks": "mean"})
    assert "--ranks=mean" in shlex.split(command)
    assert metric_names(site.entries()) == {"return": 1, "return@rank1": 1, "time-step": 1, "timestamp": 1}
    assert metric_names(site.entries(), "mean") == {"return": 1, "time-step": 1, "timestamp": 1}


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
    curve = curves.Curve(None, np.arange(len(ys), dtype=float), np.array(ys), np.empty((2, 0)), len(ys))  # type: ignore[arg-type]
    edges = curves._edges(0.0, len(ys) - 1.0, log=False, width=width)
    series = curves._buckets(curve, curves._places(curve.xs, edges, {}), 2 * width)
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
    parts = [curves.Curve(None, xs, one, np.empty((2, 0)), len(xs)) for one in ys]  # type: ignore[arg-type]
    parts[499].xs = xs + 0.5  # not the x of the others
    kind, at, series = curves._thinned(parts, (0.0, 5000.0, False), 1000)
    assert (kind, len(at)) == ("buckets", 2 * curves.LEAST_BUCKETS)
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


def test_nan_and_inf_are_marks(root: Path) -> None:
    write_rows(root, write_run(root), "return,time-step\n1.0,0\nnan,1\n,2\ninf,3\n-inf,4\n2.0,5\n")
    head, xs, series = asked(Site([root]))
    assert xs.tolist() == [0.0, 5.0]
    assert series[0].tolist() == [1.0, 2.0]
    assert head["curves"][0]["odd"] == {"nan": 1, "inf": 1, "-inf": 1}
    assert head["curves"][0]["marks"] == [[1.0, "nan"], [3.0, "inf"], [4.0, "-inf"]]


def test_a_metric_of_nothing_but_nan_has_a_curve_with_marks(root: Path) -> None:
    write_rows(root, write_run(root), "return,time-step\nnan,0\nnan,7\n")
    head, _, _ = asked(Site([root]))
    assert head["whole"] == [0.0, 7.0]
    assert head["curves"][0]["odd"] == {"nan": 2}


def test_the_axis_goes_as_far_as_the_marks(root: Path) -> None:
    write_rows(root, write_run(root), "return,time-step\nnan,9\n1.0,3\n2.0,4\nnan,5\ninf,1\n")
    _, xs, series = asked(Site([root]))
    assert xs.tolist() == [1.0, 3.0, 4.0, 9.0]
    assert series[0][1:3].tolist() == [1.0, 2.0]
    assert np.isnan(series[0][[0, 3]]).all()


def test_of_many_marks_the_last_are_shown_too(root: Path) -> None:
    write_rows(root, write_run(root), table_of(range(10_000), [1.0] + [math.nan] * 9999))
    head, _, _ = asked(Site([root]), width=1000)
    places = [x for x, _ in head["curves"][0]["marks"]]
    assert head["curves"][0]["odd"] == {"nan": 9999}
    assert len(places) == curves.MAX_MARKS
    assert max(np.diff([0.0, *places, 9999.0])) < 100


def test_runs_without_the_metric_are_counted(root: Path) -> None:
    write_run(root, number=0)
    write_rows(root, write_run(root, number=1), "loss,time-step\n1,1\n")
    head, _, series = asked(Site([root]))
    assert head["lacking"] == 1
    assert len(series) == 1


def test_x_of_other_columns(root: Path) -> None:
    write_rows(root, write_run(root), table_of([0, 10, 20], [3, 1, 2]))
    site = Site([root])
    assert asked(site, x="elapsed")[1].tolist() == [0.0, 20.0, 40.0]
    assert asked(site, x="row")[1].tolist() == [0.0, 1.0, 2.0]
    assert asked(site, x="timestamp")[1].tolist() == [1000.0, 1020.0, 1040.0]
    _head, xs, series = asked(site, x="return")
    assert (xs.tolist(), series[0].tolist()) == ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert asked(site, x="nope")[0]["lacking"] == 1


def test_rows_without_a_time_step_are_numbered(root: Path) -> None:
    write_rows(root, write_run(root, number=0), "return\n5\n6\n7\n")
    write_rows(root, write_run(root, number=1), "return,time-step\n5,0\n6,0\n7,0\n")
    _, xs, series = asked(Site([root]))
    assert xs.tolist() == [0.0, 1.0, 2.0]
    assert [one.tolist() for one in series] == [[5.0, 6.0, 7.0]] * 2


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
    for number in range(curves.RAW_RUNS + 1):
        write_page_run(root, number)
    head, _, series = asked(Site([root]), smooth=7)
    assert not head["raw"]
    assert len(series) == curves.RAW_RUNS + 1


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


def test_a_broken_table_is_left_out(root: Path) -> None:
    write_run(root, number=0)
    index = write_run(root, number=1)
    (root / "log" / "task" / index / "progress.csv").write_bytes(b"return,time-step\n\0\0\0\n")
    head, _, _ = asked(Site([root]))
    assert head["lacking"] == 1


def test_a_table_that_vanishes_while_it_is_shown(root: Path) -> None:
    index = write_run(root)
    site = Site([root])
    site.look(wait=True)
    (root / "log" / "task" / index / "progress.csv").unlink()
    head, _, _ = decoded(bytes(curves.curves(site, {"runs": [0], "metric": "return"}).body))
    assert head["lacking"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": "all"},
        {"runs": [1.5]},
        {"width": "wide"},
        {"width": math.inf},
        {"range": [1]},
        {"range": [2, 1]},
        {"range": [math.nan, 1]},
        {"smooth": None},
        {"group": "lr"},
        {"group": [["lr"]]},
        {"group": ["lr"], "band": "no such"},
    ],
)
def test_a_bad_question_is_told(root: Path, wrong: dict[str, Any]) -> None:
    write_run(root)
    with pytest.raises(ArgumentError):
        asked(Site([root]), **wrong)


def test_a_group_that_no_run_has_names_the_nearest(root: Path) -> None:
    write_run(root)
    with pytest.raises(UnknownNameError, match="seed"):
        asked(Site([root]), group=["sed"])


def told_csv(site: Site) -> str:
    async def read() -> bytes:
        parts = as_csv(site, {"runs": [0], "metric": "return"}).body_iterator
        return b"".join([part.encode() if isinstance(part, str) else bytes(part) async for part in parts])

    return asyncio.run(read()).decode()


@pytest.mark.parametrize(
    ("further", "words"),
    [
        ({"whole": True}, ["--group=index", "--band=none"]),
        ({"whole": True, "group": []}, ["--band=ci"]),
        ({"where": "lr == '1'", "log": True}, ["--run={}", "--group=index", "--band=none"]),
        ({"whole": True, "where": "lr == '1'"}, ["--where=lr == '1'", "--group=index", "--band=none"]),
        (
            {"group": ["lr", "-x"], "band": "iqm", "smooth": 3},
            ["--run={}", "--group=lr,-x", "--band=iqm", "--smooth=3"],
        ),
        (
            {"x": "loss", "range": [1.5, 2.5]},
            ["--run={}", "--group=index", "--band=none", "--x=loss", "--bound=2.5"],
        ),
    ],
)  # fmt: skip
def test_the_command_of_a_panel(root: Path, further: dict[str, Any], words: list[str]) -> None:
    index = write_run(root)
    site = Site([root])
    site.look(wait=True)
    line = panel_export.command(site, {"runs": [0], "metric": "--return", **further})
    own = [word.format(index[:26]) for word in words]
    assert shlex.split(line, comments=True) == ["rla", "plot", f"--data-root={root}", *own, "--", "--return"]
    assert ("lower end" in line, "logarithmic" in line) == ("range" in further, "log" in further)


def test_more_points_than_a_csv_holds_are_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_export, "MAX_CSV_ROWS", 9)
    write_run(root)
    site = Site([root])
    site.look(wait=True)
    with pytest.raises(ArgumentError, match="10 points"):
        told_csv(site)


def test_of_several_values_at_one_x_none_is_lost(root: Path) -> None:
    ys = np.zeros(1000)
    ys[503] = 1e6
    write_rows(root, write_run(root), table_of(np.arange(1000) // 10, ys))
    _, _, series = asked(Site([root]))
    assert np.nanmax(series[0]) == 1e6
    assert np.nanmin(series[0]) == 0


def test_csv_is_every_row(root: Path) -> None:
    write_rows(root, write_run(root, number=0), "return,time-step\n1.0,0\nnan,1\n0.1,2\n")
    site = Site([root])
    site.look(wait=True)
    lines = told_csv(site).splitlines()
    assert lines[0] == "table,index,metric,time-step,value"
    assert [line.split(",")[-2:] for line in lines[1:]] == [["0.0", "1.0"], ["1.0", "nan"], ["2.0", "0.1"]]


def test_encoded_as_the_module_says() -> None:
    head, xs, series = decoded(encode({"kind": "ä"}, np.array([1.0]), [np.array([2.0]), np.array([np.nan])]))
    assert (head["kind"], xs.tolist(), series[0].tolist()) == ("ä", [1.0], [2.0])
    assert np.isnan(series[1][0])


def test_a_chain_is_one_curve(root: Path) -> None:
    first = write_run(root, number=0, rows=10)
    second = write_run(root, number=1, rows=5)
    path = root / "log" / "task" / second / "run.json"
    content = json.loads(path.read_text())
    content["parent"] = {"run": first, "table": "task", "time_step": 6, "rows": 7, "chain": True}
    path.write_text(json.dumps(content))
    write_rows(root, second, table_of(range(7, 12), range(7, 12)))
    site = Site([root])
    site.look(wait=True)
    assert len(site.entries()) == 1
    head, xs, _ = asked(site)
    assert xs.tolist() == list(range(12))
    assert list(head["cursors"].values()) == [None]
    assert len(Database(root).curves([("task", second)], "return")) == 12
