from __future__ import annotations

from pathlib import Path

import pytest
from support.sampled import write_samples
from support.written_runs import MakeRun

import rla_client.database
from rla_client.contract.errors import DatabaseError
from rla_client.database.lake import sample_table

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.fixture
def sampled(root: Path, make_run: MakeRun) -> Path:
    rows = [
        {"prompt": "p" * 100, "reward": n, "rewards": {"format": 0.5}, "finish": "stop"} for n in range(3)
    ]
    write_samples(root, "task", make_run(number=1), [(step, rows) for step in (1, 2)])
    write_samples(root, "other", make_run(number=2, table="other"), [(1, rows[:1])])
    make_run(number=3)
    return root


def test_samples_of_all_runs_are_a_view(sampled: Path) -> None:
    database = rla_client.database.open(sampled)
    found = database.sql(
        "SELECT left(run, 5), time_step, count(*), avg(reward), avg(numbers['rewards/format']), "
        "min(texts['finish']), max(numbers['prompt_chars']) FROM samples GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert found == [
        ("other", 1.0, 1, 0.0, 0.5, "stop", 100.0),
        ("task/", 1.0, 3, 1.0, 0.5, "stop", 100.0),
        ("task/", 2.0, 3, 1.0, 0.5, "stop", 100.0),
    ]
    joined = database.sql("SELECT count(*) FROM samples JOIN runs USING (run) WHERE state = 'finished'")
    assert joined.fetchall() == [(7,)]


def test_without_samples_it_is_empty(root: Path, make_run: MakeRun) -> None:
    make_run()
    assert rla_client.database.open(root).sql("SELECT count(*) FROM samples").fetchall() == [(0,)]


def test_too_many_are_refused(sampled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "MAX_ROWS", 5)
    with pytest.raises(DatabaseError, match="--samples"):
        rla_client.database.open(sampled).sql("SELECT * FROM samples")
