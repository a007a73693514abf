"""Recovery: which state counts when some of it is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.lone import LoneStream, Side

import rla_client.stream.segment_writer as spool_module
from rla_agent.model.stream_states import OutputEvent, StreamState
from rla_agent.pipeline import segment_base
from rla_client.contract.spool.segments import base_path, segment_numbers, segment_path


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoneStream:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    return LoneStream(tmp_path)


def seqs(lone: LoneStream) -> list[int]:
    lines = (lone.root / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("seq")
    return [int(line.split(",")[column]) for line in lines[1:]]


def finish(lone: LoneStream) -> None:
    with Side(lone) as side:
        side.read_all()
        side.commit()
    assert seqs(lone) == list(range(lone.rows))
    assert not [name for name in os.listdir(lone.root) if ".old-" in name]


@pytest.mark.parametrize("unlinked", [0, 1, 2, 3])
def test_killed_between_base_and_unlinks_and_agent_db_lost(lone: LoneStream, unlinked: int) -> None:
    for _ in range(40):
        lone.row({"v": 1})
    with Side(lone) as side:
        keep = [segment_path(lone.writer.folder, n).read_bytes() for n in segment_numbers(lone.writer.folder)]
        first_base = base_path(lone.writer.folder, 1).read_bytes()
        side.read_all()
        side.commit()
    for number, data in list(enumerate(keep, 1))[unlinked:-1]:
        segment_path(lone.writer.folder, number).write_bytes(data)  # as if not unlinked yet
    if unlinked == 0:
        base_path(lone.writer.folder, 1).write_bytes(first_base)
    lone.forget_database()
    lone.row({"v": 2})
    finish(lone)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("lost", [0, 5])
def test_earlier_segments_and_bases_are_gone_and_agent_db_is_not(
    lone: LoneStream, lost: int, restart: bool
) -> None:
    """The spool was deleted, and its writer wrote the open segment anew: the files go on."""
    for _ in range(40):
        lone.row({"v": 1})
    side = Side(lone)
    side.read_all()
    side.commit()
    for _ in range(lost):
        lone.row({"v": "x" * 600})  # one segment each, that no agent takes in
    folder, last = lone.writer.folder, segment_numbers(lone.writer.folder)[-1]
    while segment_numbers(folder)[-1] == last:
        lone.row({"v": "x" * 600})
    kept = segment_numbers(folder)[-1]
    for path in folder.glob("*.*"):
        if path.name != segment_path(folder, kept).name:
            path.unlink()
    lone.row({"v": 2})
    if restart:
        side.drop()
        side = Side(lone)
    with side:
        side.read_all()
        side.commit()
    found = seqs(lone)
    assert found == sorted(set(found)), "none comes twice"
    assert found[:40] == list(range(40))
    assert found[-1] == lone.rows - 1
    assert len(found) >= lone.rows - lost - 2
    assert not [name for name in os.listdir(lone.root) if ".old-" in name]


def test_killed_after_commit_before_the_base_and_then_agent_db_lost(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        monkeypatch.setattr(segment_base, "freeable", lambda _stream: [])
        side.commit()
        monkeypatch.undo()
    for _ in range(3):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()  # writes the base of a segment that it found itself in the middle of
    lone.forget_database()
    finish(lone)


def test_an_older_agent_db_is_passed_over(lone: LoneStream) -> None:
    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    old = lone.database.read_bytes()
    for _ in range(40):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    lone.forget_database()
    lone.database.write_bytes(old)
    lone.row({"v": 2})
    finish(lone)


def test_agent_db_lost_after_a_widening(lone: LoneStream) -> None:
    for number in range(60):
        lone.row({f"late{number // 20}": number})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    lone.forget_database()
    lone.row({"yet another": 1})
    finish(lone)


def test_a_stored_intent_is_completed(lone: LoneStream, monkeypatch: pytest.MonkeyPatch) -> None:
    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
        lone.row({"late": 1})
        with monkeypatch.context() as context:
            real = os.rename

            def refused(source: object, target: object, **named: object) -> None:
                if str(target) == "progress.csv":
                    raise OSError(5, "Input/output error")
                real(source, target, **named)  # type: ignore[arg-type]

            context.setattr(os, "rename", refused)
            side.read(2)
            side.serve()
            output = next(output for output in side.stream.outputs if output.name == "csv")
            assert output.intent
            assert output.blocked
            side.commit()
    assert (lone.root / "progress.csv").read_text().startswith("seq,time-step,timestamp,v\n")
    finish(lone)
    assert (lone.root / "progress.csv").read_text().startswith("seq,time-step,timestamp,v,late\n")


def test_a_widening_that_cannot_be_stored_leaves_the_old_file(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
        lone.row({"late": 1})

        def full(_changes: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as context:
            context.setattr(side.database, "commit", full)
            side.read(2)
            side.serve()
        assert (lone.root / "progress.csv").read_text() == "seq,time-step,timestamp,v\n0,0,0.0,1\n"
        assert not [name for name in os.listdir(lone.root) if name.startswith(".rla-tmp-")]
        side.read_all()
        side.commit()
    finish(lone)


def test_a_removed_item_is_not_made_again(lone: LoneStream) -> None:
    import shutil

    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    shutil.rmtree(lone.root)
    with Side(lone) as side:
        assert side.stream.state is StreamState.ITEM_MISSED
    assert not lone.root.exists()


def test_files_of_an_earlier_run_are_put_aside(lone: LoneStream) -> None:
    (lone.root / "progress.csv").write_text("mine\n1\n")
    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    assert seqs(lone) == [0]
    assert (lone.root / "progress.old-1.csv").read_text() == "mine\n1\n"


def test_a_folder_that_holds_no_rows_may_be_gone(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path, {"log": ".", "results": "results", "code": "code"})
    (lone.root / "results").mkdir()
    (lone.root / "code").write_text("somebody's file")
    lone.row({"v": 1})
    with Side(lone) as side:
        side.read_all()
        side.commit()
    (lone.root / "results").rmdir()
    lone.row({"v": 2})
    finish(lone)
    assert not (lone.root / "results").exists()


def test_where_a_file_takes_the_place_of_a_folder_the_stream_waits(lone: LoneStream) -> None:
    lone.row({"v": 1})
    (lone.root / "tb").write_text("somebody's file")
    with pytest.raises(NotADirectoryError):
        Side(lone)
    (lone.root / "tb").unlink()
    finish(lone)


def test_an_output_that_could_not_be_stored_since_agent_db_was_lost(lone: LoneStream) -> None:
    for _ in range(40):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.settle()
    assert segment_numbers(lone.writer.folder)[0] > 1
    lone.forget_database()
    lone.row({"v": 1})
    with Side(lone) as side:
        (csv,) = [output for output in side.stream.outputs if output.name == "csv"]
        csv.fail(OSError(28, "No space left on device"))
        csv.handle(OutputEvent.STARTED_OVER)
        side.read()
        side.commit()
        rows = side.database.outputs_of(side.stream.name)
        assert "" in rows
        assert "csv" not in rows
    finish(lone)
