"""What a machine says that cannot have a checkpoint which rank 0 found on another one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rla_client.checkpoint import sharded_loading
from rla_client.checkpoint.sharded_loading import ChosenCheckpoint, bring_save
from rla_client.contract.errors import FetchError, NotOnMasterError
from rla_client.stream import fetch


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (
            [NotOnMasterError("it is not whole there"), FetchError("not done after 1 s")],
            (
                "not done after 1 s; it is on node-a, whose agent has not sent all of it in 0.1 s "
                "(there: rla-agent replicate status)"
            ),
        ),
        ([FetchError("no agent is running here")], "no agent is running here"),
    ],
)
def test_a_wait_that_a_slow_question_ends_names_the_machine_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[FetchError], problem: str
) -> None:
    left = iter(answers)

    def ask(*_: object, **__: object) -> None:
        error = next(left)
        if not isinstance(error, NotOnMasterError):
            time.sleep(0.2)
        raise error

    monkeypatch.setattr(fetch, "bring_sharded", ask)
    monkeypatch.setattr(sharded_loading, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", "0.1")
    found = ChosenCheckpoint(1, tmp_path / "there", host="node-a")
    assert bring_save(tmp_path / "checkpoint_1.dcp", found, "", None, autostart=False) == problem
