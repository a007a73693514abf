"""What is kept as code of a program without rla_config.yaml: of real programs, started from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.spooled import stop_autostart

from rla_client.code.find_code import is_broad
from rla_client.contract.agent.places import Places

SCRIPT = """
import rla_client, sys
try:
    import helper
except ImportError:
    pass
manager = rla_client.init("mini", config={"seed": 1}, track=["seed"], data_root=sys.argv[1], **OPTIONS)
"""


def start(script: Path | None, cwd: Path, home: Path, options: str = "") -> tuple[list[str], str]:
    """Run a training script; the code that its item keeps (the spool takes no blob), and its output."""
    data = home / "database"
    program = SCRIPT.replace("**OPTIONS", options)
    if script is not None:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(program)
    command = [sys.executable, *(["-c", program] if script is None else [os.path.relpath(script, cwd)])]
    done = subprocess.run(
        [*command, data], cwd=cwd, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (item,) = data.glob("code/mini/*/*/*/*")
    found = (path.relative_to(item).as_posix() for path in item.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith("parameter.")), done.stdout


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)


@pytest.fixture
def home(tmp_path: Path, places: Places) -> Path:
    """A home with a project, a key, and neighbours; code is copied into items at once."""
    stop_autostart(places)
    places.spool.rmdir()
    places.spool.write_text("no folder: the spool takes nothing")
    made = tmp_path / "home"
    put(made, ".ssh/id_ed25519", ".netrc", ".cache/x", "notes.txt", "project/deep/lib.py", "project/.env")
    put(made, "neighbour/n.py")
    return made


def test_started_from_home_the_project_is_kept_and_no_secret(home: Path) -> None:
    files, printed = start(home / "project" / "mini.py", home, home)
    assert files == ["deep/lib.py", "mini.py"]
    assert f"the source files of {home / 'project'} " in printed
    assert printed.count("no rla_config.yaml was found") == 1


def test_started_from_another_folder_the_script_is_kept(home: Path) -> None:
    files, _printed = start(home / "project" / "mini.py", home / "neighbour", home)
    assert files == ["deep/lib.py", "mini.py"]


def test_the_repository_of_the_script(home: Path) -> None:
    (home / "project" / ".git").mkdir()
    (home / ".git").mkdir()
    files, _printed = start(home / "project" / "scripts" / "mini.py", home, home)
    assert files == ["deep/lib.py", "scripts/mini.py"]
    (home / "project" / ".git").rmdir()
    (home / "database").rename(home / "earlier")
    files, _printed = start(home / "project" / "scripts" / "mini.py", home, home)
    assert files == ["mini.py"], "a repository of the home folder is not a project"


def test_a_script_in_the_home_folder_is_kept_with_what_it_imported(home: Path) -> None:
    put(home, "helper.py", "unused.py")
    files, printed = start(home / "mini.py", home / "neighbour", home)
    assert files == ["helper.py", "mini.py"]
    assert f"{home / 'mini.py'} and what it imported" in printed


def test_without_a_script_the_working_folder_counts(home: Path) -> None:
    files, _printed = start(None, home / "project", home)
    assert files == ["deep/lib.py"]
    (home / "database").rename(home / "earlier")
    put(home, "helper.py")
    files, printed = start(None, home, home)
    assert files == ["helper.py"]
    assert f"imported from {home}, which is not a project" in printed


def test_who_says_what_the_code_is_gets_that_without_a_word(home: Path) -> None:
    for options in (
        f"code_root={str(home / 'neighbour')!r}",
        "rla_config={'BACKUP_CONFIG': {'backup_code_dir': ['neighbour']}}",
    ):
        files, printed = start(home / "project" / "mini.py", home, home, options)
        assert [os.path.basename(name) for name in files] == ["n.py"]
        assert "rla_config.yaml" not in printed
        (home / "database").rename(home / f"earlier-{len(options)}")


def test_folders_that_are_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "a" / "b"))
    for broad in (Path("/"), Path("/tmp"), tmp_path / "a" / "b", tmp_path / "a", Path.home().parent):
        assert is_broad(broad), broad
    for project in (tmp_path / "a" / "b" / "c", tmp_path / "x"):
        assert not is_broad(project)


def test_logs_and_data_beside_the_script_are_no_code(home: Path) -> None:
    project = home / "project"
    put(
        project,
        "run1.txt",
        "nohup.out",
        "table.npz",
        "sweep.sh",
        "conf/env.XML",
        "Makefile",
        "requirements-dev.txt",
    )
    put(project, "tracked.txt")
    git(project, "init", "-q")
    git(project, "add", "tracked.txt")
    script = project / "mini.py"
    files, _ = start(script, home, home)
    shown = {name for name in files if not name.startswith(".")}
    assert shown == {
        "mini.py",
        "deep/lib.py",
        "sweep.sh",
        "conf/env.XML",
        "Makefile",
        "requirements-dev.txt",
        "tracked.txt",
    }


def test_what_a_run_prints_into_is_no_code_whatever_it_is_called(home: Path) -> None:
    project = home / "project"
    put(project, "rla_config.yaml")
    script, data = project / "mini.py", home / "database"
    script.write_text(SCRIPT.replace("**OPTIONS", "rla_config='project/rla_config.yaml'"))
    with (project / "log.py").open("w") as out, (project / "err.txt").open("w") as errors:
        subprocess.run([sys.executable, script, data], cwd=home, env={**os.environ, "HOME": str(home)},
                       stdout=out, stderr=errors, timeout=60, check=True)  # fmt: skip
    (item,) = data.glob("code/mini/*/*/*/*")
    kept = {path.relative_to(item).as_posix() for path in item.rglob("*") if path.is_file()}
    assert "deep/lib.py" in kept
    assert not kept & {"log.py", "err.txt"}
