"""Figures of plain data in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.errors import ArgumentError
from rla_client.media.simple_plots import simple_hist, simple_plot, simple_scatter


@pytest.mark.further
@pytest.mark.slow
def test_simple_plots(run: Any) -> None:
    simple_plot("p", data=[[1, 2], [2, 1]], labels=["a", "b"], xlabel="x", ylabel="y")
    simple_plot("q", x=[[1, 2]], y=[[3, 4]], labels=["a"], colors=["r"], styles=["x--"], pretty=True)
    simple_hist("h", [[1, 2, 2], [3]], labels=["a", "b"])
    simple_scatter("s", [np.zeros((3, 2)), np.ones((3, 2))], ["A", "B"], pretty=True)
    with pytest.raises(ArgumentError):
        simple_plot("nothing")

    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN] * 4
    assert run.files == ["h.png", "p.png", "q.pdf", "s.pdf"]


@pytest.mark.parametrize(
    ("simple", "more"), [(simple_plot, {"legend_outside": True}), (simple_hist, {"colors": ["r"]})]
)
def test_simple_plots_take_a_title_and_options_of_matplotlib(run: Any, simple: Any, more: Any) -> None:
    simple("t", data=[[1, 2]], labels=["a"], title="T", linewidth=7, **more)
    (axes,) = run.figure()["figure"].axes
    assert axes.get_title() == "T"
    drawn = axes.lines or axes.patches
    assert drawn[0].get_linewidth() == 7
    beside = axes.get_legend().get_bbox_to_anchor().x0 >= axes.bbox.x1
    assert beside == ("legend_outside" in more)
