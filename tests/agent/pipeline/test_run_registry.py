"""What an opening frame says of the run that its stream goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunEvent, RunState
from rla_agent.pipeline.run_liveness import follow
from rla_agent.pipeline.run_registry import RunRegistry, new_run_record
from rla_client.contract.spool.losses import Loss
from rla_client.contract.spool.opening import Continuation, Earlier
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack


@pytest.fixture
def registry() -> Iterator[RunRegistry]:
    """One that is right in the end."""
    made = RunRegistry()
    yield made
    made.validate(())


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


@pytest.mark.parametrize("told", [{}, {"master": True}, {"offline": True}, {"replicate": False}])
def test_run_json_says_of_a_run_on_the_master_itself_that_it_stays(tmp_path: Path, told: Any) -> None:
    """From its beginning, also while the list of databases, which says so, too, is held by somebody."""
    with Side(LoneStream(tmp_path)) as side:
        side.stream.opening = side.stream.opening._replace(**told)
        assert dict(new_run_record(side.stream).extra)["replicate"] is (not told)


def test_a_run_that_was_resumed_after_long_is_not_stalled_at_once(tmp_path: Path) -> None:
    with Side(LoneStream(tmp_path)) as side:
        record = replace(new_run_record(side.stream), opened=1e6, reopened=2e6)
        assert follow(side.stream, record, 2e6 + 10, 1800.0).state is RunState.RUNNING
        assert follow(side.stream, record, 2e6 + 2000, 1800.0).state is RunState.STALLED


def lost(writer: Any, **told: Any) -> None:
    writer.append(encode_frame(FrameKind.MARK, pack(["lost", {"time": 1.0, **told}])), 0)


def test_losses_are_summed_over_streams_and_counted_once_after_a_restart(tmp_path: Path) -> None:
    """A client tells them cumulatively, once more in each opening frame."""
    lone = LoneStream(tmp_path)
    figure = ["figure", "1-a.png", "Traceback:\n  File x\nValueError: bad"]
    lost(lone.writer, rows=2, others=1, losses=[["row", "", "full"], figure])
    with Side(lone) as side:
        side.read_all()
        record = follow(side.stream, new_run_record(side.stream), 0.0, 1e9)
        assert (record.lost, record.lost_others) == (2, 1)
        assert record.losses == (Loss("row", "", "full"), Loss("figure", "1-a.png", "ValueError: bad"))
        side.commit()
    lost(lone.writer, rows=5, others=1, losses=[["row", "", "fuller"]])
    lost(lone.writer, rows=-1, others="x", losses=7)
    lost(lone.writer, rows="many")
    with Side(lone) as side:
        side.read_all()
        record = follow(side.stream, record, 0.0, 1e9)
        lost(lone.writer, rows=5, others=1, losses=[["text", "", "full"]])
        side.read_all()  # reasons that come after the number, which an opening frame told
        record = follow(side.stream, record, 0.0, 1e9)
        assert (record.lost, record.lost_others) == (5, 1)
        assert record.losses[1:] == (Loss("row", "", "fuller"), Loss("text", "", "full"))
    assert RunRecord.from_plain(record.to_plain(0.0)).losses == record.losses
    (tmp_path / "other").mkdir()
    other = LoneStream(tmp_path / "other")
    lost(other.writer, rows=4)
    with Side(other) as side:
        side.read_all()
        record = follow(side.stream, record, 0.0, 1e9)
    assert (record.lost, record.lost_others) == (9, 1)


def test_no_more_run_files_are_written_than_there_is_time_for(registry: RunRegistry, tmp_path: Path) -> None:
    with Side(LoneStream(tmp_path)) as side:
        record = new_run_record(side.stream)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        registry.records[str(number)] = replace(
            record, run=str(number), log_folder=str(tmp_path / str(number)), root=str(tmp_path)
        )
    records = list(registry.records.values())
    assert registry.write_files(records, 1.0, until=0.0), "one is written, two are left"
    assert [registry.is_written(str(number)) for number in range(3)].count(False) == 2
    assert registry.write_files((), 1.0, until=0.0)
    assert not registry.write_files((), 1.0)
    assert all((tmp_path / str(number) / "run.json").exists() for number in range(3))


def test_each_run_has_its_turn_where_one_file_at_a_time_is_written(
    registry: RunRegistry, tmp_path: Path
) -> None:
    """Live runs come due again and again, also while those that ended wait."""
    with Side(LoneStream(tmp_path)) as side:
        record = new_run_record(side.stream)
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        registry.records[str(number)] = replace(
            record, run=str(number), log_folder=str(tmp_path / str(number)), root=str(tmp_path)
        )
    registry.write_files(list(registry.records.values()), 0.0)
    killed = [str(number) for number in range(0, 20, 2)]
    for run in killed:
        registry.records[run] = registry.records[run].after(RunEvent.WRITER_GONE, 1.0, "gone")
    for turn in range(1, 20):
        registry.write_files(list(registry.records.values()), turn * 100.0, until=0.0)
    assert registry.write_files(list(registry.records.values()), 2000.0, until=0.0), "some are always left"
    assert all(registry.is_written(run) for run in killed)
    assert {json.loads((tmp_path / run / "run.json").read_bytes())["state"] for run in killed} == {"killed"}


def test_a_registry_that_cannot_be_is_noticed(registry: RunRegistry, tmp_path: Path) -> None:
    with Side(LoneStream(tmp_path)) as side:
        with pytest.raises(AssertionError):
            registry.validate([side.stream])
        registry.opened(side.stream, side.database, 1.0)
        registry.validate([side.stream])
        record = registry.records.pop("r")
        with pytest.raises(AssertionError):
            registry.validate(())
        registry.records["r"] = record
