"""Which files of a project are its code: for archives, and for whether a commit is dirty."""

# (the places fixture acts by being there)
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rla_client.code.launch_archive import restore
from rla_client.code.repository import Repository, find_repository
from rla_client.code.written_files import note_written
from rla_client.contract.agent.places import Places

IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@y")
LAUNCHER = """
import sys
from rla_client.launcher import wrap_experiment
import helper
import package.module
@wrap_experiment(log_dir=sys.argv[1])
def experiment(ctxt): pass
experiment()
"""


@pytest.fixture(autouse=True)
def own_folder(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLA_AGENT_AUTOSTART", "0")
    places.stopped_marker.touch()  # nothing here needs an agent


def found(folder: Path, outside: tuple[Path, ...]) -> Repository:
    repository = find_repository(folder, outside)
    assert repository is not None
    return repository


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def project(folder: Path, *, repository: bool = True) -> Path:
    """A launcher with a module and a package; committed."""
    for name in ("helper.py", "unused.py", "package/__init__.py", "package/module.py", "other/x.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("X = 1\n")
    (folder / "launcher.py").write_text(LAUNCHER)
    if repository:
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "x")
    return folder


CODE = {
    "helper.py",
    "unused.py",
    "package/__init__.py",
    "package/module.py",
    "launcher.py",
    "other/x.py",
}


def launch(folder: Path, log_dir: Path, **variables: str) -> tuple[str, Path]:
    """Run the launcher; its output."""
    done = subprocess.run(
        [sys.executable, str(folder / "launcher.py"), str(log_dir)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, log_dir


def archived(log_dir: Path) -> set[str]:
    return set(json.loads((log_dir / "launch_manifest.json").read_text())["files"])


def githash(log_dir: Path) -> str | None:
    found = json.loads((log_dir / "metadata.json").read_text()).get("githash")
    return None if found is None else str(found)


def test_data_roots_and_repeated_runs_are_no_code(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    head = git(folder, "rev-parse", "HEAD")
    for name in (
        "data/log/table/run/progress.csv",
        "data/archive_tester/table/run/x",
        "data/results/deep/x.txt",
        "data/local/rerun/run/code/launcher.py",
        "elsewhere/data/local/experiment/run-rerun/code/launcher.py",
        "env/pyvenv.cfg",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("no code\n")
    _, log_dir = launch(folder, folder / "plain")
    assert archived(log_dir) == CODE
    assert githash(log_dir) == head
    (folder / "data" / "helper.py").write_text("no code either: in a data root\n")
    (folder / "new.py").write_text("code\n")
    _, log_dir = launch(folder, tmp_path / "second")
    assert archived(log_dir) == CODE | {"new.py"}
    assert githash(log_dir) == f"{head}-dirty"


def test_a_project_that_is_its_own_data_root(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    for name in (
        "log/table/run/x.txt",
        "archive_tester/table/run/x",
        "code/table/run/old.py",
        "deep/log/x.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("X = 1\n")
    assert found(folder, ()).untracked == frozenset({"deep/log/x.py"})


def test_a_changed_file_makes_it_dirty_except_in_an_outside_folder(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    (folder / "other" / "x.py").write_text("X = 2\n")
    assert found(folder, ()).dirty
    assert not found(folder, (folder / "other",)).dirty
    assert found(folder, (folder / "other",)).tracked == frozenset(CODE - {"other/x.py"})
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not found(folder, (link / "other",)).dirty


def failing_git(folder: Path, command: str) -> str:
    """A PATH with a git whose `command` fails."""
    folder.mkdir()
    script = folder / "git"
    script.write_text(
        f'#!/bin/sh\nfor a in "$@"; do [ "$a" = {command} ] && exit 128; done\n'
        'PATH="${PATH#*:}" exec git "$@"\n'
    )
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_repository_that_git_does_not_list_is_warned_of(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    output, log_dir = launch(folder, tmp_path / "one", PATH=failing_git(tmp_path / "bin", "ls-files"))
    assert f"git did not list the files of {folder}" in output
    assert not list(log_dir.glob("launch_archive*"))
    assert githash(log_dir) == git(folder, "rev-parse", "HEAD") + "-unknown"


def test_a_tree_whose_state_git_does_not_tell_is_not_recorded_as_clean(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    (folder / "helper.py").write_text("X = 2\n")
    _, log_dir = launch(folder, tmp_path / "one", PATH=failing_git(tmp_path / "bin", "status"))
    assert githash(log_dir) == git(folder, "rev-parse", "HEAD") + "-unknown"


def test_a_repository_that_git_refuses_is_warned_of_and_its_launcher_kept(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    output, log_dir = launch(folder, tmp_path / "one", PATH=failing_git(tmp_path / "bin", "rev-parse"))
    assert f"git does not answer about the repository {folder}" in output
    assert {"launcher.py", "helper.py"} <= archived(log_dir)


def test_without_git_the_modules_beside_the_launcher_are_kept(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", repository=False)
    (folder / "data.txt").write_text("no module")
    output, log_dir = launch(folder, tmp_path / "one")
    assert "git does not answer" not in output
    assert json.loads((log_dir / "metadata.json").read_text())["launcher"] == str(folder / "launcher.py")
    assert archived(log_dir) == CODE - {"other/x.py"}  # not imported


SECRET_LAUNCHER = """
import sys
from rla_client.launcher import wrap_experiment
@wrap_experiment(data_root=sys.argv[1], rla_config={"REMOTE_SETTING": {"credentials_file": "own/login"}})
def experiment(ctxt): pass
experiment()
"""


def test_secrets_stay_out_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path / "project")
    monkeypatch.chdir(folder)
    (folder / "launcher.py").write_text(SECRET_LAUNCHER)
    config = "REMOTE_SETTING:\n  password: geheim\n  identity_file: %s/own/deploy\n"
    (folder / "rla_config.yaml").write_text(config % folder)
    for name in ("own/login", "own/deploy", "own/code.py", ".env", ".ssh/config", "tracked.pem"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("geheim")
    (folder / "harmless.txt").hardlink_to(folder / "own" / "login")
    git(folder, "add", "tracked.pem", "rla_config.yaml")
    git(folder, "commit", "-qm", "x")
    launch(folder, tmp_path / "data")
    (manifest,) = (tmp_path / "data").rglob("launch_manifest.json")
    assert archived(manifest.parent) == CODE | {"own/code.py", "tracked.pem"}
    assert set(json.loads(manifest.read_text())["left_out"]) == {
        "own/login", "own/deploy", "harmless.txt", ".env", ".ssh/config", "rla_config.yaml",
    }  # fmt: skip
    restored = tmp_path / "restored"
    restore(manifest.parent, restored)
    assert not (restored / "rla_config.yaml").exists()


def test_a_configuration_without_secrets_is_archived_and_a_broken_one_is_not(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    (folder / "rla_config.yaml").write_text("LOG_USED: [csv]\n")
    (folder / "other" / "rla_config.yaml").write_text("REMOTE_SETTING: {password: geheim, nonsense: 1}\n")
    _, log_dir = launch(folder, tmp_path / "one")
    assert archived(log_dir) == CODE | {"rla_config.yaml"}


def test_the_code_of_a_rerun_is_its_own_and_not_that_of_the_repository_around(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    copy = folder / "data" / "local" / "rerun" / "run" / "code"
    project(copy, repository=False)
    (copy / "helper.py").write_text("X = 7\n")
    output, log_dir = launch(copy, tmp_path / "one")
    assert "git does not answer" not in output
    assert githash(log_dir) is None
    restore(log_dir, tmp_path / "restored")
    assert (tmp_path / "restored" / "helper.py").read_text() == "X = 7\n"


def test_commands_of_a_virtual_environment_and_tracked_launchers_are_the_repositorys(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    for name in (".venv/bin/train", ".venv/pyvenv.cfg", "log/x", "archive_tester/x", "code/train.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    assert find_repository(folder / ".venv" / "bin", ()) is not None
    assert find_repository(folder / "code", ()) is None
    git(folder, "add", "code/train.py")
    assert find_repository(folder / "code", ()) is not None


def test_what_rla_wrote_is_no_code(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    for name in ("log", "archive_tester"):
        (folder / "data" / name).mkdir(parents=True)
    for name in ("runs.csv", "plot.png"):
        (folder / name).write_text("a result")
        note_written(folder / "data", folder / name)
    _, log_dir = launch(folder, tmp_path / "one")
    assert githash(log_dir) == git(folder, "rev-parse", "HEAD")
    assert archived(log_dir) == CODE
    (folder / "plot.png").write_text("of somebody else")
    assert found(folder, ()).untracked == frozenset({"plot.png"})


@pytest.mark.slow
def test_files_that_are_too_large_are_named_in_the_warning(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    output, _ = launch(folder, tmp_path / "one")
    assert "MiB" not in output
    for number in range(7):
        with open(folder / f"large{number}.bin", "wb") as file:
            file.truncate(9 << 20)
    output, log_dir = launch(folder, tmp_path / "two")
    assert "holds 0 MiB, and 7 file(s) are too large for it: large0.bin (9 MiB)" in output
    assert "large4.bin (9 MiB) and 2 more" in output
    assert archived(log_dir) == CODE


HOME_SCRIPT = """
import helper
from rla_client.launcher import wrap_experiment
@wrap_experiment(@@)
def experiment(ctxt): print("LOG " + ctxt.log_dir)
experiment()
"""


@pytest.mark.slow
@pytest.mark.parametrize("repository", [True, False])
def test_of_a_home_folder_only_the_program_is_archived(tmp_path: Path, *, repository: bool) -> None:
    home = tmp_path / "home"
    for name in (".profile", "helper.py", "letters.txt", "old.py", "other/project/x.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("X = 1\n")
    (home / "launcher.py").write_text(HOME_SCRIPT.replace("@@", f"data_root={str(home / 'db')!r}"))
    if repository:  # of settings
        git(home, "init", "-q")
        git(home, "add", ".profile")
        git(home, "commit", "-qm", "x")
    output, _ = launch(home, home, HOME=str(home))
    log_dir = Path(next(line[4:] for line in output.splitlines() if line.startswith("LOG ")))
    code = home / "db" / "code" / log_dir.relative_to(home / "db" / "log")
    program = {"launcher.py", "helper.py"}
    assert archived(code) == (program | {".profile"} if repository else program)
    assert f"the code kept with this run is {home / 'launcher.py'} and what it imported" in output
    assert output.count("is not a project") == 1 + repository
    plain = HOME_SCRIPT.replace("@@", "log_dir='plain'")
    (home / "launcher.py").write_text(plain)
    output, _ = launch(home, home, HOME=str(home))
    assert archived(tmp_path / "plain") == archived(code)
    assert output.count("is not a project") == repository


def test_the_file_monitor_that_a_repository_names_is_not_run(tmp_path: Path) -> None:
    """A repository's own settings may name a program that git starts whenever it is asked for files."""
    folder = project(tmp_path / "project")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(program))

    _, log_dir = launch(folder, tmp_path / "log")

    assert archived(log_dir) == CODE
    assert not (tmp_path / "ran").exists()
