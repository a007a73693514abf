"""Archives of repositories that have everything git takes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from rla_client.code import launch_archive
from rla_client.code.repository import find_repository
from rla_client.contract.errors import LaunchError
from rla_client.contract.job.code_blob import MAX_FILE_BYTES

IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True)


def make_repository(folder: Path) -> Path:
    sub, project = folder / "sub", folder / "project"
    for one in (sub, project):
        one.mkdir()
        git(one, "init", "-q")
    (sub / "inner.py").write_text("X = 1\n")
    git(sub, "add", "-A")
    git(sub, "commit", "-qm", "x")
    (project / "my code").mkdir()
    (project / "my code" / "launch it.py").write_text("print(1)\n")
    (project / "link.py").symlink_to("my code/launch it.py")
    (project / "dangling").symlink_to("/nonexistent")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / ".gitignore").write_text("*.bin\n")
    (project / "left out.bin").write_text("ignored")
    (project / "deleted.py").write_text("gone")
    git(project, "submodule", "-q", "add", str(sub), "third party/sub")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "x")
    (project / "deleted.py").unlink()
    (project / "run.sh").write_text("#!/bin/sh\n# changed\n")
    (project / "ümlaut\n and newline").write_text("untracked")
    (project / os.fsdecode(b"not \xff unicode")).write_text("untracked")
    with open(project / "large", "wb") as file:
        file.truncate(MAX_FILE_BYTES)
    (project / "data" / "local" / "run").mkdir(parents=True)
    (project / "data" / "local" / "run" / "progress.csv").write_text("a\n")
    return project


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    project = make_repository(tmp_path)
    log = project / "data" / "local" / "run"
    outside = (project / "data" / "local",)
    found = find_repository(project / "my code", outside)
    assert found is not None
    assert found.root == project
    assert found.dirty
    launch_archive.capture(log, found, project / "my code" / "launch it.py").wait(60)
    (project / "run.sh").write_text("changed once more")
    manifest = launch_archive.restore(log, tmp_path / "restored here")
    there = {
        os.path.relpath(os.path.join(base, name), tmp_path / "restored here")
        for base, _, names in os.walk(tmp_path / "restored here")
        for name in names
    }
    assert there == set(manifest.files)
    assert there == {
        ".gitignore",
        ".gitmodules",
        "dangling",
        "link.py",
        "my code/launch it.py",
        os.fsdecode(b"not \xff unicode"),
        "run.sh",
        "third party/sub/inner.py",
        "ümlaut\n and newline",
    }
    restored = tmp_path / "restored here"
    assert (restored / "run.sh").read_text() == "#!/bin/sh\n# changed\n"
    assert (restored / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(restored / "dangling") == "/nonexistent"
    assert (restored / "link.py").read_text() == "print(1)\n"
    assert set(manifest.left_out) == {"deleted.py", "large"}


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//b", "."])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    content = b"x"
    with tarfile.open(tmp_path / launch_archive.RAW_NAME, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    files = {name: {"sha256": hashlib.sha256(content).hexdigest(), "size": 1, "mode": 0o644}}
    manifest = {"files": files, "left_out": {}}
    (tmp_path / launch_archive.MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(LaunchError, match="not a path below"):
        launch_archive.restore(tmp_path, tmp_path / "deep" / "restored")
    assert not list(tmp_path.rglob("out"))
