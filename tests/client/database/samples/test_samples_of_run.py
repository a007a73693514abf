from __future__ import annotations

from pathlib import Path

import pytest
from support.sampled import write_samples
from support.written_runs import MakeRun

import rla_client.database
from rla_client.contract.errors import ArgumentError


@pytest.fixture
def sampled(root: Path, make_run: MakeRun) -> Path:
    index = make_run(table="task")
    rows = [
        {"prompt": f"p{number % 2}", "completion": f"c{number}", "reward": -number} for number in range(6)
    ]
    write_samples(root, "task", index, [(step, rows) for step in (1, 2)])
    return root


def test_the_worst_of_a_step(sampled: Path) -> None:
    samples = rla_client.database.open(sampled).samples()
    assert len(samples) == 12
    worst = samples.where("reward < 0", step=2).sort("reward").head(2)
    assert [(row["step"], row["completion"]) for row in worst] == [(2, "c5"), (2, "c4")]
    assert worst.sort("-reward")[0]["completion"] == "c4"
    assert len(worst.where("reward == -5")) == 1
    assert len(samples.where(grep="C3")) == 0
    assert len(samples.where(grep="c3")) == 2


def test_one_is_found_by_its_id_and_frames_are_made(sampled: Path) -> None:
    run = next(iter(rla_client.database.open(sampled)))
    samples = run.samples()
    assert samples.find("7")["completion"] == "c1"
    with pytest.raises(ArgumentError, match="'99'"):
        samples.find("99")
    pytest.importorskip("pandas")
    assert list(samples.head(2).frame()["completion"]) == ["c0", "c1"]
    assert "completion" in samples.head(2).frame(whole=False).columns


def test_a_run_without_samples_has_none(root: Path, make_run: MakeRun) -> None:
    make_run()
    samples = rla_client.database.open(root).samples()
    assert len(samples.where("anything == 1", step=3, grep="x")) == 0
    assert list(samples.sort("reward")) == []
