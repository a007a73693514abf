"""Experiments that are started again with RLA_RUN_ID and RLA_RESUME: real processes, a real agent."""

# (the agent fixture acts by being there)
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import launchers

from rla_client.launcher.pending_streams import await_end

CONFIG = "BACKUP_CONFIG:\n  backup_code_dir: [launcher.py]\n"


@pytest.fixture(autouse=True)
def own_folder(agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("RLA_RUN_ID", "sweep-3")
    monkeypatch.setenv("RLA_RESUME", "allow")
    monkeypatch.setenv("RLA_RUN_FILE", str(tmp_path / "runs.jsonl"))


def project(folder: Path, options: str = "snapshot_mode='all'", calls: str = "search(epoch_s=0.1)") -> Path:
    path = launchers.write(folder, f"prefix='task', {options}", calls)
    (folder / "rla_config.yaml").write_text(CONFIG)
    return path


def kill_at(path: Path, line: str) -> str:
    """Start a launcher and SIGKILL it as soon as it printed `line`; what it printed."""
    process = launchers.start(path)
    told = []
    for one in launchers.printed(process):
        told.append(one)
        if line in one:
            break
    else:
        pytest.fail("".join(told))
    process.kill()
    rest, _ = process.communicate(timeout=launchers.DEADLINE_S)
    return "".join(told) + rest


def items(folder: Path) -> list[Path]:
    """Log folders of all items, oldest first, once everything is in them."""
    found = sorted(record.parent for record in (folder / "data" / "log").rglob("variant.json"))
    for log in found:
        await_end(log)
    return found


def record(log: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((log / "run.json").read_text())
    return found


_reference: list[list[dict[str, str]]] = []


def uninterrupted(tmp_path: Path) -> list[dict[str, str]]:
    """Rows of a run that nobody killed; made once."""
    if not _reference:
        path = project(tmp_path / "whole", calls="search()")
        launchers.run(path)
        (log,) = items(path.parent)
        _reference.append(launchers.rows(log))
        assert len(_reference[0]) == 12
    return _reference[0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["all", "last"])
def test_a_killed_experiment_goes_on_from_its_last_snapshot(tmp_path: Path, mode: str) -> None:
    path = project(tmp_path / "p", f"snapshot_mode='{mode}'")
    kill_at(path, "epoch #3 | EpochTime")
    out = kill_at(path, "epoch #7 | EpochTime")
    assert "Restored epoch" in out
    assert "epoch #1 |" not in out
    (log,) = items(path.parent)
    assert record(log)["run_key"] == "sweep-3"
    assert "epoch #5 |" not in launchers.run(path)
    (again,) = items(path.parent)
    assert again == log, "one item"
    assert launchers.rows(log) == uninterrupted(tmp_path)
    found = record(log)
    assert (found["state"], found["run_key"]) == ("finished", "sweep-3")
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["data_root"] == str(path.parent / "data")]
    assert len(told) == 3
    assert {(line["run_key"], line["index"]) for line in told} == {("sweep-3", "/".join(log.parts[-4:]))}


@pytest.mark.slow
def test_a_finished_one_continues_where_it_ended(tmp_path: Path) -> None:
    """One that stopped in good order when it was told to looks the same; there is nothing left to do here."""
    path = project(tmp_path / "p", calls="search(epochs=2)")
    launchers.run(path)
    assert "epoch #0 |" not in launchers.run(path)
    (log,) = items(path.parent)
    wanted = [{**row, "late": ""} for row in launchers.rows(log)]  # a column that comes later
    assert wanted == uninterrupted(tmp_path)[:2]
    assert record(log)["state"] == "finished"


@pytest.mark.slow
def test_must_without_one_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_RESUME", "must")
    process = launchers.start(project(tmp_path / "p"))
    out, _ = process.communicate(timeout=launchers.DEADLINE_S)
    assert process.returncode == 1
    assert "resume='must', but table 'task/search'" in out
    assert not items(tmp_path / "p")


@pytest.mark.further
@pytest.mark.slow
def test_must_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project(tmp_path / "p", calls="search(epoch_s=0.4, epochs=4)")
    kill_at(path, "epoch #1 | EpochTime")
    reference = uninterrupted(tmp_path)[:4]
    monkeypatch.setenv("RLA_RESUME", "must")
    assert "epoch #0 |" not in launchers.run(path)
    (log,) = items(path.parent)
    assert launchers.rows(log) == reference


@pytest.mark.slow
def test_one_that_is_still_going_is_refused(tmp_path: Path) -> None:
    path = project(tmp_path / "p", calls="search(epoch_s=5)")
    first = launchers.start(path)
    try:
        assert first.stdout is not None
        assert any("epoch #1 |" in line for line in first.stdout)
        second = launchers.start(path)
        out, _ = second.communicate(timeout=launchers.DEADLINE_S)
        assert second.returncode == 1
        assert "is being written by a running process" in out or "still being written" in out
    finally:
        first.kill()
        first.communicate(timeout=launchers.DEADLINE_S)
    assert len(items(path.parent)) == 1


SEVERAL = """
@wrap_experiment(task_table_name="t")
def outer(ctxt):
    inner(seed=9, epochs=2)
    search({"task_table_name": "t"}, seed=5, epochs=6, epoch_s=0.1)
@wrap_experiment(task_table_name="t", snapshot_mode="last")
def inner(ctxt, seed=1, epochs=2):
    search.__wrapped__(ctxt, seed, epochs)
search({"task_table_name": "t"}, epochs=2)
search({"task_table_name": "t"}, seed=2, epochs=6, epoch_s=0.1)
print("now the outer one", flush=True)
outer()
"""


def keys(folder: Path) -> list[tuple[object, object, int]]:
    return [(record(log)["run_key"], record(log)["state"], len(launchers.rows(log))) for log in items(folder)]


@pytest.mark.slow
def test_each_call_of_a_program_has_an_id_of_its_own(tmp_path: Path) -> None:
    path = project(tmp_path / "p", "snapshot_mode='last'", SEVERAL)
    process = launchers.start(path)
    seen = 0
    for line in launchers.printed(process):
        seen += "epoch #3 |" in line
        if seen:
            break
    process.kill()
    process.communicate(timeout=launchers.DEADLINE_S)
    assert [found[:2] for found in keys(path.parent)] == [("sweep-3", "finished"), ("sweep-3:2", "killed")]
    kill_at(path, "now the outer one")
    found = keys(path.parent)
    assert found[:2] == [("sweep-3", "finished", 2), ("sweep-3:2", "finished", 6)]
    assert [key for key, _state, _rows in found].count("sweep-3") == 1, "the first call is not done once more"


@pytest.mark.slow
def test_calls_inside_of_others_have_none(tmp_path: Path) -> None:
    calls = SEVERAL[: SEVERAL.index("search({", SEVERAL.index("__wrapped__"))] + "outer()\n"
    path = project(tmp_path / "p", "snapshot_mode='last'", calls)
    kill_at(path, "epoch #3 |")
    launchers.run(path)
    ran = [(key, state) for key, state, _rows in keys(path.parent)]
    assert ran == [
        ("sweep-3", "finished"), ("", "finished"), ("", "killed"), ("", "finished"), ("", "finished"),
    ]  # fmt: skip


@pytest.mark.slow
def test_what_the_launcher_gives_now_gives_way_to_what_is_recorded(tmp_path: Path) -> None:
    calls = "import sys\nsearch(epochs=4, epoch_s=0.4, seed=int(sys.argv[1]))"
    path = project(tmp_path / "p", calls=calls.replace("int(sys.argv[1])", "1"))
    kill_at(path, "epoch #1 | EpochTime")
    project(tmp_path / "p", calls=calls)
    out = launchers.run(path, "7")
    assert "seed=1, as recorded; the launcher gave 7" in out
    (log,) = items(path.parent)
    assert launchers.rows(log) == uninterrupted(tmp_path)[:4]


@pytest.mark.slow
def test_another_functions_run_is_refused(tmp_path: Path) -> None:
    path = project(tmp_path / "p", "snapshot_mode='last', name='same'")
    kill_at(path, "epoch #1 | EpochTime")
    path.write_text(path.read_text().replace("search(", "other("))
    process = launchers.start(path)
    out, _ = process.communicate(timeout=launchers.DEADLINE_S)
    assert process.returncode == 1
    assert "was started by search, so other cannot continue it" in out


OWN_CHECKPOINTS = """
from rla_client import exp_manager, time_step_holder
@wrap_experiment(prefix="task")
def own(ctxt):
    exp_manager.new_saver(max_to_keep=2)
    start = 0
    if exp_manager.resumed_from is not None:
        start, _content = exp_manager.load_checkpoint()
    for step in range(start + 1, 13):
        time_step_holder.set_time(step)
        tabular.record("step", step)
        logger.log(tabular)
        logger.dump_all()
        exp_manager.save_checkpoint({"step": step})
        exp_manager.flush()
        print("did", step, flush=True)
        time.sleep(0.03)
own()
"""


@pytest.mark.slow
def test_checkpoints_of_exp_manager_are_gone_on_from_as_ever(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    path = project(tmp_path / "p", calls=OWN_CHECKPOINTS)
    kill_at(path, "did 5")
    out = launchers.run(path)
    assert "did 3\n" not in out
    (log,) = items(path.parent)
    assert [int(float(row["step"])) for row in launchers.rows(log)] == list(range(1, 13))


FIGURES = """
from rla_client import exp_manager
@wrap_experiment(prefix="task", snapshot_mode="last")
def both(ctxt):
    search.__wrapped__(ctxt, epoch_s=0.1)
    exp_manager.new_saver(max_to_keep=1)
    exp_manager.save_checkpoint({"last": 1})
both()
"""


@pytest.mark.further
@pytest.mark.slow
def test_exp_manager_has_the_item_that_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    path = project(tmp_path / "p", calls=FIGURES)
    kill_at(path, "epoch #5 | EpochTime")
    out = launchers.run(path)
    assert "epoch #1 |" not in out
    (log,) = items(path.parent)
    (saved,) = (path.parent / "data" / "checkpoint").rglob("checkpoint_*.pt")
    assert saved.parts[-5:-1] == log.parts[-4:]


@pytest.mark.further
@pytest.mark.slow
def test_one_without_snapshots_begins_again_in_its_item(tmp_path: Path) -> None:
    path = project(tmp_path / "p", "snapshot_mode='none'")
    kill_at(path, "epoch #3 | EpochTime")
    assert "epoch #0 |" in launchers.run(path)
    (log,) = items(path.parent)
    assert launchers.rows(log) == uninterrupted(tmp_path)
    assert record(log)["run_key"] == "sweep-3"


@pytest.mark.slow
def test_ranks_above_0_do_not_wait_for_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    path = project(tmp_path / "p", "snapshot_mode='last'", "search(epochs=4, epoch_s=0.4)")
    kill_at(path, "epoch #1 | EpochTime")
    first = launchers.start(path)
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert "did not tell where the run continues" not in launchers.run(path)
    out, _ = first.communicate(timeout=launchers.DEADLINE_S)
    assert first.returncode == 0, out
    assert len(items(path.parent)) == 1


@pytest.mark.further
@pytest.mark.slow
def test_plain_folders_begin_anew(tmp_path: Path) -> None:
    path = launchers.write(tmp_path / "p", "snapshot_mode='last'", "search(epochs=4, epoch_s=0.4)")
    kill_at(path, "epoch #1 | EpochTime")
    launchers.run(path)
    folders = (path.parent / "data" / "local" / "experiment").iterdir()
    assert sorted(folder.name for folder in folders) == ["search", "search_1"]
