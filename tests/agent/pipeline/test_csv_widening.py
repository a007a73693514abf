"""Rewrites of a CSV with more columns: when they start, and what a kill leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.stream_states import OutputState
from rla_agent.pipeline import csv_widening as csv_widening_module
from rla_agent.pipeline.csv_widening import LONGEST_REST_S, REST_FACTOR, SHORTEST_REST_S, rest_after
from rla_agent.pipeline.temp_files import sweep_temp_files, temp_name
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def temps(lone: LoneStream) -> list[str]:
    return [name for name in os.listdir(lone.root) if name.startswith(".rla-tmp-")]


@pytest.mark.parametrize(
    ("rewrite_s", "former_s", "calm_s", "rest_s"),
    [
        (0.001, 0.0, 1e9, SHORTEST_REST_S),
        (1.0, 0.0, 1e9, REST_FACTOR),
        (0.001, 4.0, 1.0, 8.0),
        (0.001, 4.0, 5.0, SHORTEST_REST_S),
        (0.001, 1e4, 1.0, LONGEST_REST_S),
    ],
)
def test_rest_doubles_while_columns_keep_coming(
    rewrite_s: float, former_s: float, calm_s: float, rest_s: float
) -> None:
    assert rest_after(rewrite_s, former_s, calm_s) == rest_s


def test_late_columns_of_many_rows_cost_one_rewrite(lone: LoneStream) -> None:
    lone.row({"a": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
        for number in range(30):
            lone.row({f"late{number:02}": number})
        side.read_all()
        side.commit()
        (csv,) = [output for output in side.stream.outputs if output.name == "csv"]
        assert csv.generation == 1
    lines = (lone.root / "progress.csv").read_text().splitlines()
    assert lines[0].split(",")[:5] == ["a", "seq", "time-step", "timestamp", "late00"]
    assert len(lines) == 32
    assert {line.count(",") for line in lines} == {33}
    assert not temps(lone)


def test_temp_file_of_a_killed_rewrite_goes_and_one_of_an_intent_gets_its_name(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone.row({"a": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
        lone.row({"late": 1})
        with monkeypatch.context() as context:
            context.setattr(csv_widening_module, "finish_intent", lambda *_: None)  # killed before the rename
            side.read()
            side.serve()
        (waiting,) = temps(lone)
        assert side.database.intents() == {waiting}
        dead = temp_name(side.stream.name)
        (lone.root / dead).write_text("half")
        theirs = temp_name("another")
        (lone.root / theirs).write_text("of a rewrite that runs")
        before = set(os.listdir(lone.root))
        sweep_temp_files(str(lone.root), ".", side.stream.name, {waiting}, time.time())
        assert before - set(os.listdir(lone.root)) == {dead}
        (lone.root / dead).write_text("half")
    with Side(lone) as side:
        assert temps(lone) == [theirs]
        side.read_all()
        side.commit()
    assert (lone.root / "progress.csv").read_text().splitlines()[0] == "a,seq,time-step,timestamp,late"


def test_small_temp_files_go_when_they_are_old(tmp_path: Path) -> None:
    for name in (".rla-tmp-0123456789abcdef", ".rla-tmp-pull-x", "mine"):
        (tmp_path / name).touch()
    now = time.time()
    sweep_temp_files(str(tmp_path), ".", "s", (), now)
    assert len(os.listdir(tmp_path)) == 3
    sweep_temp_files(str(tmp_path), ".", "s", (), now + OLD_TEMP_S + 5)
    assert sorted(os.listdir(tmp_path)) == [".rla-tmp-pull-x", "mine"]
    sweep_temp_files(str(tmp_path), "gone", "s", (), now)


@pytest.mark.parametrize("during", [False, True])
def test_a_file_that_is_removed_while_it_waits_for_columns(lone: LoneStream, *, during: bool) -> None:
    lone.row({"a": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
        lone.row({"late": 1})
        if during:
            side.read()
            (csv,) = [output for output in side.stream.outputs if output.name == "csv"]
            assert csv.state is OutputState.WIDENING
        (lone.root / "progress.csv").unlink()
        side.read()
        side.serve()
        side.settle()
        lone.row({"later": 1})
        side.settle()
        assert not side.stream.removed
    assert (lone.root / "progress.csv").read_text() == (
        "late,seq,time-step,timestamp,later\n1,1,1,1.0,\n,2,2,2.0,1\n"
    )
