"""What an opening frame says of the run that its stream goes on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.states import RunState
from rla_agent.pipeline.runs import follow, new_run_record
from rla_client.contract.opening import Continuation, Earlier


@pytest.mark.parametrize(
    ("continues", "began", "ran_s"),
    [
        ({"began": 100.0, "ran_s": 50.0}, 100.0, 50.0),
        ({"began": 100, "ran_s": None}, 100.0, 0.0),
        ({"began": 100.0, "ran_s": -5.0}, 100.0, 0.0),
        ({"rows": None}, None, 0.0),
        ({"began": float("nan"), "ran_s": float("inf")}, None, 0.0),
        ({"began": "x", "ran_s": []}, None, 0.0),
        (None, None, 0.0),
        ("x", None, 0.0),
    ],
)
def test_a_resumed_run_that_this_agent_does_not_know(
    tmp_path: Path, continues: Any, began: float | None, ran_s: float
) -> None:
    with Side(LoneStream(tmp_path)) as side:
        opening = side.stream.opening
        told = Continuation(earlier=Earlier.from_fields(continues))
        side.stream.opening = opening._replace(continues=told)
        record = new_run_record(side.stream)
    assert record.opened == (opening.opened if began is None else began)
    assert record.reopened == (None if began is None else opening.opened)
    assert record.ran_before_s == ran_s


def test_a_run_that_was_resumed_after_long_is_not_stalled_at_once(tmp_path: Path) -> None:
    with Side(LoneStream(tmp_path)) as side:
        record = replace(new_run_record(side.stream), opened=1e6, reopened=2e6)
        assert follow(side.stream, record, 2e6 + 10, 1800.0).state is RunState.RUNNING
        assert follow(side.stream, record, 2e6 + 2000, 1800.0).state is RunState.STALLED
