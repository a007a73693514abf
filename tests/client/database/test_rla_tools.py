from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path

import pytest
from support.legacy_database import LEGACY_TABLE, entries_of_all_kinds

from rla_client.contract.errors import ArgumentError
from rla_client.database import (
    ArchiveLogTool,
    DeleteLogTool,
    Filter,
    MigrateLogTool,
    PrettyPlotterTool,
    ViewLogTool,
)


def everything() -> Filter:
    chosen = Filter()
    chosen.config(type=Filter.ALL, timstep_bound=1)
    return chosen


def small(bound: float) -> Filter:
    chosen = Filter()
    chosen.config(type=Filter.SMALL_TIMESTEP, timstep_bound=bound)
    return chosen


def test_a_run_in_seven_kinds_counts_seven(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1)
    make_run(number=2, kinds=("log", "code", "checkpoint", "archive_tester", "results"))
    tool = DeleteLogTool(str(root), "task", "2026/11/21/09-30*", everything())
    assert tool.delete_related_log(skip_ask=True) == 12
    assert tool.delete_related_log(skip_ask=True) == 0


def test_only_the_kinds_that_were_asked_for(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    tool = DeleteLogTool(str(root), "task", "2026/*", everything())
    assert tool.delete_related_log(skip_ask=True, delete_log_types=["checkpoint"]) == 1
    assert (root / "log" / "task" / index).is_dir()
    assert not (root / "checkpoint" / "task" / index).exists()


def test_small_runs_go_and_long_ones_stay(root: Path, make_run: Callable[..., str]) -> None:
    long = make_run(number=1, rows=50)
    make_run(number=2, rows=10)
    empty = make_run(number=3, rows=0)
    (root / "log" / "task" / empty / "progress.csv").unlink()
    assert DeleteLogTool(str(root), "task", "2026/*", small(9)).delete_small_timestep_log(skip_ask=True) == 14
    assert [path.name for path in (root / "log" / "task" / "2026" / "11" / "21").iterdir()] == [
        long.rsplit("/", 1)[1]
    ]


def test_archive_copies_and_the_archive_can_be_deleted(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    assert ArchiveLogTool(str(root), "task", "2026/*").archive_log(skip_ask=True) == 7
    assert ArchiveLogTool(str(root), "task", "2026/*").archive_log(skip_ask=True) == 7
    assert (root / "arc" / "archive_tester" / "task" / f"{index}.json").is_file()
    assert (
        DeleteLogTool(str(root / "arc"), "task", "2026/*", everything()).delete_related_log(skip_ask=True)
        == 7
    )
    assert (root / "log" / "task" / index / "progress.csv").is_file()


def test_migrate_copies_to_another_table(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    tool = MigrateLogTool(str(root), "task", "2026/*", target_task_table_name="other/{table}")
    assert tool.migrate_log(skip_ask=True) == 7
    copied = root / "checkpoint" / "other" / "{table}" / index / "checkpoint_10.pt"
    assert copied.read_bytes() == b"zip"


def test_live_runs_are_left_out(
    root: Path, make_run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    live = make_run(number=1, state="running")
    make_run(number=2, state="running", updated=1.0)  # nobody has written this one for long
    assert DeleteLogTool(str(root), "task", "2026/*", everything()).delete_related_log(skip_ask=True) == 7
    assert (root / "log" / "task" / live).is_dir()
    assert "being written" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "left"), [("n", True), ("", True), ("y", False)])
def test_the_question_is_heard(
    root: Path, make_run: Callable[..., str], monkeypatch: pytest.MonkeyPatch, answer: str, left: bool
) -> None:
    index = make_run()
    monkeypatch.setattr(builtins, "input", lambda _: answer)
    DeleteLogTool(str(root), "task", "2026/*", everything()).delete_related_log()
    assert (root / "log" / "task" / index).exists() is left


def test_view_and_gen_json(
    root: Path,
    make_run: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    old_pickle: Callable[..., bytes],
) -> None:
    index = make_run(kinds=("log",))
    assert ViewLogTool(str(root), "task", "2026/*").view_log(skip_ask=True) == 1
    assert "key: lr, value: 0.1" in capsys.readouterr().out
    path = root / "archive_tester" / "task" / f"{index}.pkl"
    path.parent.mkdir(parents=True)
    path.write_bytes(old_pickle())
    assert PrettyPlotterTool(str(root), "task", "2026/*").gen_json("2026/*") == 1
    assert '"nested"' in (root / "log" / "task" / index / "parameter.json").read_text()


def test_wrong_arguments_are_refused(root: Path) -> None:
    with pytest.raises(ArgumentError):
        DeleteLogTool(str(root), "../outside", "*", everything())
    with pytest.raises(ArgumentError):
        MigrateLogTool(str(root), "task", "*", "/abs")
    with pytest.raises(ArgumentError):
        Filter().config("some", 1)


def test_the_originals_data(legacy: Path) -> None:
    glob = "2022/07/27/14-3*"
    count = entries_of_all_kinds(legacy, f"{LEGACY_TABLE}/{glob}")
    without_rows = entries_of_all_kinds(legacy, f"{LEGACY_TABLE}/{glob}", empty=True)
    assert count > without_rows > 2
    assert ArchiveLogTool(str(legacy), LEGACY_TABLE, glob).archive_log(skip_ask=True) == count
    assert (
        DeleteLogTool(str(legacy / "arc"), LEGACY_TABLE, glob, everything()).delete_related_log(skip_ask=True)
        == count
    )
    tool = MigrateLogTool(str(legacy), LEGACY_TABLE, glob, LEGACY_TABLE + "_v2")
    assert tool.migrate_log(skip_ask=True) == count
    assert (
        DeleteLogTool(str(legacy), LEGACY_TABLE + "_v2", glob, everything()).delete_related_log(skip_ask=True)
        == count
    )
    assert (
        DeleteLogTool(str(legacy), LEGACY_TABLE, glob, small(1)).delete_small_timestep_log(skip_ask=True)
        == without_rows
    )
    assert (
        DeleteLogTool(str(legacy), LEGACY_TABLE, glob, everything()).delete_related_log(skip_ask=True)
        == count - without_rows
    )
