from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.sampled import write_samples
from support.written_runs import MakeRun

import rla_client.database
from rla_client.contract.errors import DatabaseError
from rla_client.database.lake import sample_table
from rla_client.database.lake.build import build
from rla_client.database.lake.manifest import LAKE
from rla_client.database.lake.status import status
from rla_client.database.lake.verify import verify

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
        "SELECT left(run, 5), step, count(*), avg(reward), avg(numbers['rewards/format']), "
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


EVERY = 'SELECT run, step, logged, name, role, "group", id, reward, prompt, numbers, texts FROM samples'


def answers(root: Path) -> list[str]:
    return sorted(map(repr, rla_client.database.open(root).sql(EVERY).fetchall()))


@pytest.mark.slow
def test_the_lake_says_what_the_files_say(
    sampled: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: list[dict[str, Any]] = [
        {"reward": float("nan"), "kind": "a", "n": float("nan"), "rewards": {"format": float("nan")}},
        {"reward": None, "n": float("inf")},
        {"kind": "b"},
    ]
    index = make_run(number=4)
    file = write_samples(sampled, "task", index, [(1, odd)], label="rollout-1", left_out=2)
    write_samples(sampled, "task", make_run(number=5, state="running"), [(1, odd[:1])])

    def check(read: int) -> None:
        """The answers are those of the files alone, of which `read` samples are read."""
        lake, away = sampled / LAKE, sampled / "away"
        lake.rename(away)
        expected = answers(sampled)
        away.rename(lake)
        monkeypatch.setattr(sample_table, "MAX_ROWS", read)
        assert answers(sampled) == expected
        monkeypatch.setattr(sample_table, "MAX_ROWS", read - 1)
        with pytest.raises(DatabaseError, match="not in the lake"):
            answers(sampled)
        monkeypatch.setattr(sample_table, "MAX_ROWS", 1000)

    build(sampled, time.time() + 1)
    assert not verify(sampled, time.time() + 1).wrong
    check(1)  # the live run's
    write_samples(sampled, "task", index, [(2, odd)], label="rollout-1")
    check(7)  # what came later is seen
    build(sampled, time.time() + 1)
    check(1)
    file.unlink()
    check(1)
    assert status(sampled, time.time() + 1).changed == 1
    build(sampled, time.time() + 1)
    check(1)
    assert status(sampled, time.time() + 1).changed == 0


def test_a_part_that_is_written_anew_keeps_its_samples(sampled: Path, make_run: MakeRun) -> None:
    build(sampled, time.time() + 1)
    expected = answers(sampled)
    make_run(number=6)
    report = build(sampled, time.time() + 1)
    assert report is not None
    assert report.read == 1
    assert answers(sampled) == expected
