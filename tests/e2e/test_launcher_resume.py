"""Runs that are killed and resumed, repeated, restored: real processes, a real agent."""

# (the agent fixture acts by being there)
from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client" / "launcher"))
import launchers

from rla_client.contract.errors import LaunchError
from rla_client.launcher import code_restore, relaunch
from rla_client.launcher.launch_record import is_of_launcher
from rla_client.launcher.pending_streams import await_end


@pytest.fixture(autouse=True)
def own_folder(agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in launchers.FIXED_HASH.items():
        monkeypatch.setenv(name, value)


def only(folder: Path) -> Path:
    (found,) = (folder / "data" / "local" / "experiment").iterdir()
    return found


def kill_at(path: Path, epoch: int) -> None:
    """Start a launcher and SIGKILL it as soon as it printed that `epoch` ended."""
    process = launchers.start(path)
    for line in launchers.printed(process):
        if f"epoch #{epoch} | EpochTime" in line:
            break
    process.kill()
    process.communicate(timeout=launchers.DEADLINE_S)


def events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (path,) = folder.rglob("events.out.tfevents.*")
    found = []
    for event in EventFileLoader(str(path)).Load():
        values = {
            value.tag: value.tensor.float_val[0] for value in event.summary.value if value.tensor.float_val
        }
        if values:
            values.pop("timestamp", None)
            found.append((event.step, values))
    return found


_reference: dict[str, Any] = {}


def uninterrupted(tmp_path: Path) -> dict[str, Any]:
    """What an uninterrupted run gives; made once."""
    if not _reference:
        launchers.run(launchers.write(tmp_path / "whole", "snapshot_mode='all'"))
        folder = only(tmp_path / "whole")
        await_end(folder)
        _reference.update(
            rows=launchers.rows(folder),
            header=(folder / "progress.csv").read_text().splitlines()[0],
            events=events(folder),
            state=last_policy(folder, "itr_11.pkl"),
        )
        assert len(launchers.rows(folder)) == len(_reference["events"]) == 12
    return _reference


def last_policy(folder: Path, name: str) -> tuple[object, ...]:
    with open(folder / name, "rb") as file:
        saved = cloudpickle.load(file)
    return saved["algo"].policy.weights.tobytes(), saved["algo"].best, saved["rng"]["numpy"][1].tobytes()


@pytest.mark.slow
def test_two_runs_with_one_seed_are_equal(tmp_path: Path) -> None:
    launchers.run(launchers.write(tmp_path / "two", calls="search()\nsearch()\nsearch(seed=2)"))
    base = tmp_path / "two" / "data" / "local" / "experiment"
    for folder in base.iterdir():
        await_end(folder)
    first, second, third = (launchers.rows(base / name) for name in ("search", "search_1", "search_2"))
    assert first == second
    assert first != third


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "snapshot_mode='gap', snapshot_gap=4",
        pytest.param("snapshot_mode='gap_and_last', snapshot_gap=3", marks=pytest.mark.further),
    ],
)
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, options: str) -> None:
    killed_and_resumed(tmp_path, options, random.randint(0, 10))


@pytest.mark.soak
@pytest.mark.parametrize("epoch", range(12))
def test_killed_and_resumed_at_every_epoch(tmp_path: Path, epoch: int) -> None:
    killed_and_resumed(tmp_path, "snapshot_mode='last'", epoch)


@pytest.mark.further
@pytest.mark.slow
def test_killed_and_resumed_with_workers_and_a_snapshot_now_and_then(tmp_path: Path) -> None:
    options = "snapshot_mode='gap_overwrite', snapshot_gap=3"
    found = []
    for name, epoch_s in (("whole", 0.0), ("killed", 0.1)):
        path = launchers.write(tmp_path / name, options, calls=f"search(epochs=8, epoch_s={epoch_s})")
        text = path.read_text().replace(
            "epoch_s), env)", "epoch_s), env, MultiprocessingSampler, n_workers=2)"
        )
        path.write_text(text.replace("import LocalRunner", "import MultiprocessingSampler, LocalRunner"))
        if name == "whole":
            launchers.run(path)
        else:
            kill_at(path, random.randint(3, 5))  # past the first snapshot's epoch, before the last's
            await_end(only(path.parent))
            assert [one.name for one in only(path.parent).glob("*.pkl")] == ["params.pkl"]
            assert relaunch.resume(only(path.parent)) == 0
        folder = only(path.parent)
        await_end(folder)
        found.append((launchers.rows(folder), last_policy(folder, "params.pkl")))
    assert len(found[0][0]) == 8
    assert found[0] == found[1]


def killed_and_resumed(tmp_path: Path, options: str, epoch: int) -> None:
    whole = uninterrupted(tmp_path)
    path = launchers.write(tmp_path / "killed", options, calls="search(epoch_s=0.1)")
    kill_at(path, epoch)
    folder = only(tmp_path / "killed")
    assert relaunch.resume(folder) == 0
    await_end(folder)
    assert launchers.rows(folder) == whole["rows"]
    assert (folder / "progress.csv").read_text().splitlines()[0] == whole["header"]
    assert events(folder) == whole["events"]
    if "gap'" not in options:
        assert last_policy(folder, "params.pkl") == whole["state"]
    assert only(tmp_path / "killed") == folder  # no `_1`
    text = (folder / "debug.log").read_text()
    assert "| [search] epoch #0 | return" in text
    assert "| [search] epoch #11 | return" in text
    texts = [line for line in text.splitlines() if not line.startswith(("---", "| "))]
    assert [line for line in texts if not re.match(r"[\d-]{10} [\d:]{8} \| \[search\] ", line)] == []


@pytest.mark.further
@pytest.mark.slow
def test_killed_twice_and_resumed_from_an_early_epoch(tmp_path: Path) -> None:
    whole = uninterrupted(tmp_path)
    path = launchers.write(tmp_path / "killed", "snapshot_mode='all'", calls="search(epoch_s=0.2)")
    kill_at(path, 8)
    folder = only(tmp_path / "killed")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    resuming = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from rla_client.launcher import relaunch; relaunch.resume({str(folder)!r}, 4)",
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    for line in launchers.printed(resuming):
        assert "epoch #4 |" not in line
        if "epoch #6 | EpochTime" in line:
            break
    os.killpg(resuming.pid, 9)
    resuming.communicate(timeout=launchers.DEADLINE_S)
    assert list(temporary.glob("rla-launch-*")) == []
    with pytest.raises(FileNotFoundError):
        relaunch.resume(folder, 11)
    assert relaunch.resume(folder, "first") == 0
    await_end(folder)
    assert launchers.rows(folder) == whole["rows"]
    assert events(folder) == whole["events"]


@pytest.mark.slow
def test_killed_before_the_first_snapshot_begins_again(tmp_path: Path) -> None:
    whole = uninterrupted(tmp_path)
    path = launchers.write(tmp_path / "killed", "snapshot_mode='none'", calls="search(epoch_s=0.05)")
    kill_at(path, 2)
    folder = only(tmp_path / "killed")
    assert relaunch.resume(folder) == 0
    await_end(folder)
    assert launchers.rows(folder) == whole["rows"]


@pytest.mark.slow
def test_only_the_wanted_one_of_several_runs_is_resumed(tmp_path: Path) -> None:
    calls = "for seed in (1, 2, 3):\n    search(seed=seed, epoch_s=0.1 if seed == 2 else 0.0)"
    path = launchers.write(tmp_path / "sweep", "name_parameters='passed'", calls)
    process = launchers.start(path)
    seen = 0
    for line in launchers.printed(process):
        seen += "epoch #4 | EpochTime" in line
        if seen == 2:
            break
    process.kill()
    process.communicate(timeout=launchers.DEADLINE_S)
    base = tmp_path / "sweep" / "data" / "local" / "experiment"
    second = base / "search_seed=2_epoch_s=0.1"
    assert sorted(entry.name for entry in base.iterdir()) == ["search_seed=1_epoch_s=0.0", second.name]
    assert relaunch.resume(second) == 0
    await_end(second)
    assert len(list(base.iterdir())) == 2
    assert len(launchers.rows(second)) == 12
    launchers.run(launchers.write(tmp_path / "whole", calls="search(seed=2)"))
    await_end(only(tmp_path / "whole"))
    assert launchers.rows(second) == launchers.rows(only(tmp_path / "whole"))


@pytest.mark.slow
def test_a_live_run_is_not_resumed(tmp_path: Path) -> None:
    path = launchers.write(tmp_path / "live", calls="search(epochs=10**6, epoch_s=0.05)")
    process = launchers.start(path)
    for line in launchers.printed(process):
        if "epoch #1 | EpochTime" in line:
            break
    try:
        with pytest.raises(LaunchError, match="running process"):
            relaunch.resume(only(tmp_path / "live"))
    finally:
        process.kill()
        process.communicate(timeout=launchers.DEADLINE_S)


@pytest.mark.slow
def test_code_comes_back_and_a_rerun_repeats_the_curve(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = launchers.write(project, calls="import helper\nsearch(epochs=helper.EPOCHS)")
    (project / "helper.py").write_text("EPOCHS = 4\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    for name in ("__pycache__/helper.cpython-311.pyc", "env/pyvenv.cfg", "env/lib/six.py"):
        (project / name).parent.mkdir()
        (project / name).write_text("no code of the experiment\n")
    (project / "run.sh").chmod(0o755)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    launchers.run(path)
    folder = only(project)
    wanted = {name: (project / name).read_bytes() for name in ("launcher.py", "helper.py", "run.sh")}
    (project / "helper.py").write_text("EPOCHS = 2\n")
    path.unlink()
    with pytest.raises(LaunchError, match="is gone; `rla restore-code`"):
        relaunch.resume(folder)

    code_restore.restore_code(folder, tmp_path / "code")
    assert {name.name: name.read_bytes() for name in (tmp_path / "code").iterdir()} == wanted
    assert os.access(tmp_path / "code" / "run.sh", os.X_OK)
    with pytest.raises(LaunchError, match="not empty"):
        code_restore.restore_code(folder, tmp_path / "code")

    compared = relaunch.rerun(folder, tmp_path / "again")
    assert compared.rows == (4, 4)
    assert compared.equal
    assert compared.differences == ()


@pytest.mark.slow
def test_a_damaged_archive_is_noticed(tmp_path: Path) -> None:
    launchers.run(launchers.write(tmp_path / "one", calls="search(epochs=1)"))
    folder = only(tmp_path / "one")
    manifest = folder / "launch_manifest.json"
    manifest.write_text(manifest.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(LaunchError, match="damaged"):
        code_restore.restore_code(folder, tmp_path / "code")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LaunchError, match="launch record"):
        relaunch.resume(tmp_path / "empty")
    assert relaunch.resume(folder) == 0  # it had finished
    assert "All 1 epochs are done" in (folder / "debug.log").read_text()
    assert "there is no folder nowhere" in rla("resume", "nowhere", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("run", "way"),
    [
        (None, "RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND"),
        ("[]", "RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND"),
        ('{"run_key": ""}', "it cannot continue, as it was started without a run id"),
        ('{"run_key": "", "state": "finished"}', "its command begins a new run"),
        (
            '{"run_key": "a", "state": "finished"}',
            "from its last checkpoint, run its command again: RLA_RUN_ID=a",
        ),
        ('{"run_key": "a b"}', "run its command again: RLA_RUN_ID='a b' RLA_RESUME=allow COMMAND"),
    ],
)
def test_a_run_of_no_launcher_says_how_it_continues(tmp_path: Path, run: str | None, way: str) -> None:
    if run is not None:
        (tmp_path / "run.json").write_text(run)
    with pytest.raises(LaunchError, match="is no run of a launcher") as caught:
        relaunch.resume(tmp_path)
    assert way in str(caught.value)


def rla(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """One of the commands."""
    return subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=launchers.DEADLINE_S,
        check=False,
    )


@pytest.mark.slow
def test_an_item_of_a_database_is_resumed_and_repeated_by_its_index(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = launchers.write(project, "prefix='task', snapshot_mode='last'", calls="search(epoch_s=0.1)")
    (project / "rla_config.yaml").write_text("BACKUP_CONFIG:\n  backup_code_dir: [launcher.py]\n")
    kill_at(path, 5)
    (log,) = (entry.parent for entry in (project / "data" / "log" / "task" / "search").rglob("variant.json"))
    killed = time.time()
    resumed = rla("resume", "@last", cwd=project)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    await_end(log)
    assert launchers.rows(log) == uninterrupted(tmp_path)["rows"]
    about = json.loads((log / "run.json").read_text())
    assert about["opened"] < killed < about["reopened"], "one run, that went on"
    assert 0 < about["ran_before_s"] < killed - about["opened"]
    assert len(list((project / "data" / "log" / "task" / "search").rglob("variant.json"))) == 1
    repeated = rla("rerun", str(log), str(tmp_path / "again"), cwd=project)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    assert "equal: 12 rows" in repeated.stdout
    default = rla("rerun", "@last", cwd=project)
    assert f"{project}/data/local/rerun/{log.name}-rerun" in default.stdout, default.stdout + default.stderr
    assert {entry.name for entry in project.iterdir()} <= {
        "launcher.py",
        "rla_config.yaml",
        "data",
        "__pycache__",
    }
    restored = rla("restore-code", "@last", str(tmp_path / "code"), cwd=project)
    assert restored.returncode == 0, restored.stderr
    assert (tmp_path / "code" / "launcher.py").read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_where_nothing_is_to_be_stored_nothing_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = launchers.write(tmp_path / "project", "snapshot_mode='last'", "search(epochs=2)")
    launchers.run(path)
    (record,) = path.parent.rglob("variant.json")
    monkeypatch.setenv("RLA_MODE", "disabled")
    for command in (("resume", str(record.parent)), ("rerun", str(record.parent), str(tmp_path / "x"))):
        done = rla(*command, cwd=path.parent)
        assert done.returncode != 0
        assert "RLA_MODE=disabled" in done.stdout + done.stderr
    assert not any((tmp_path / "x").rglob("*"))


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["plain", "item"])
@pytest.mark.parametrize("mode", ["all", "last", "gap', snapshot_gap=4, x_axis='TotalEnvSteps"])
def test_killed_at_any_moment_and_resumed_until_it_ends(tmp_path: Path, layout: str, mode: str) -> None:
    """Killed again and again, at moments that have nothing to do with epochs, also while it resumes."""
    whole = uninterrupted(tmp_path)
    project = tmp_path / "killed"
    path = launchers.write(project, f"prefix='task', snapshot_mode='{mode}'", calls="search(epoch_s=0.1)")
    if layout == "item":
        (project / "rla_config.yaml").write_text("BACKUP_CONFIG:\n  backup_code_dir: [launcher.py]\n")
    process = launchers.start(path)
    for line in launchers.printed(process):
        if "epoch #0" in line:
            break
    log = None
    for _ in range(6):
        time.sleep(random.uniform(0.0, 0.4))  # not a wait: the moment of the kill is what is tested
        if log is None:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=launchers.DEADLINE_S)
        (log,) = (found.parent for found in project.rglob("variant.json"))
        program = f"from rla_client.launcher import relaunch; raise SystemExit(relaunch.resume({str(log)!r}))"
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        for line in launchers.printed(process):
            if "epoch #" in line:
                break
        else:
            break
    process.communicate(timeout=launchers.DEADLINE_S)
    assert process.returncode == 0
    assert log is not None
    await_end(log)
    assert launchers.rows(log) == whole["rows"]
    assert (log / "progress.csv").read_text().splitlines()[0] == whole["header"]


def test_the_code_of_an_ordinary_run_is_copied(tmp_path: Path) -> None:
    log, code = (tmp_path / kind / "t" / "2026" / "11" / "21" / "x" for kind in ("log", "code"))
    for folder in (log, code / "pkg"):
        folder.mkdir(parents=True)
    with pytest.raises(LaunchError, match="keeps no code"):
        code_restore.copy_code(log, tmp_path / "none")
    (code / "pkg" / "a.py").write_text("x = 1\n")
    (code / "train.py").write_text("import pkg.a\n")
    (code / "parameter.yaml").write_text("lr: 1\n")
    assert not is_of_launcher(log)
    target = tmp_path / "then"
    done = rla("restore-code", str(log), str(target), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 files" in done.stdout
    assert (target / "pkg" / "a.py").read_text() == "x = 1\n"
    assert sorted(path.name for path in target.rglob("*.*")) == ["a.py", "train.py"]
    with pytest.raises(LaunchError, match="is not empty"):
        code_restore.copy_code(log, target)
