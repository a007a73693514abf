"""Marks of values that are not finite."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from support.panel_curves import asked, table_of, write_rows
from support.written_runs import write_run

from rla_client.web import curve_marks
from rla_client.web.run_registry import Site


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
    assert len(places) == curve_marks.MAX_MARKS
    assert max(np.diff([0.0, *places, 9999.0])) < 100
