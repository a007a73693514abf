"""The file environment.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from rla_client.code import environment
from rla_client.code.environment import EnvironmentCapture, package_versions, shown_variables
from rla_client.code.git_state import git_state
from rla_client.code.hidden_text import HIDDEN, hide_in_command


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "topic/one")
    (root / "a.py").write_text("x = 1\n")
    (root / ".env").write_text("A=1\n")
    (root / "c.yaml").write_text("REMOTE:\n  user: me\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def captured(root: Path, wait_s: float = environment.DIFF_WAIT_S) -> dict[str, Any]:
    written: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "DIFF_WAIT_S", wait_s)
        EnvironmentCapture(root).write(written.append)
    data: dict[str, Any] = json.loads(written[-1])
    return data


def test_commit_branch_and_diff(repository: Path) -> None:
    (repository / "a.py").write_text("x = 2\n")
    (repository / ".env").write_text("A=secret-in-env\n")
    (repository / "c.yaml").write_text("REMOTE:\n  user: me\n  password: hunter2\n")
    (repository / "sub").mkdir()

    found = captured(repository / "sub", wait_s=60.0)["git"]

    assert found["commit"] == git(repository, "rev-parse", "HEAD")
    assert (found["branch"], found["dirty"], found["root"]) == ("topic/one", True, str(repository))
    assert found["diff"]["state"] == "complete"
    assert "+x = 2" in found["diff"]["text"]
    assert "secret-in-env" not in found["diff"]["text"]
    assert "hunter2" not in found["diff"]["text"]


def test_secret_files_stay_out_of_the_diff_by_either_name(repository: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(20))
    for name in (".pgpass", "conf/.envrc", "Deploy.PPK", "sub dir/ö/.npmrc", "plain.txt"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(lines.replace("line", name))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    git(repository, "mv", ".pgpass", "renamed.txt")
    git(repository, "mv", "plain.txt", "moved.txt")
    for name in ("renamed.txt", "conf/.envrc", "Deploy.PPK", "sub dir/ö/.npmrc"):
        with (repository / name).open("a") as file:
            file.write("hunter2\n")
    (repository / ".ssh").mkdir()
    (repository / ".ssh" / "config").write_text("hunter2")
    (repository / 'a "b".pem').write_text("hunter2")
    git(repository, "add", "-N", ".ssh/config", 'a "b".pem')
    git(repository, "config", "diff.noprefix", "true")

    diff = captured(repository, wait_s=5.0)["git"]["diff"]

    assert "hunter2" not in diff["text"]
    assert "rename to moved.txt" in diff["text"]
    assert diff["left_out"] == sorted([
        ".pgpass", ".ssh/config", "Deploy.PPK", 'a "b".pem', "conf/.envrc", "renamed.txt", "sub dir/ö/.npmrc",
    ])  # fmt: skip


def test_a_changed_secret_file_alone_is_dirty(repository: Path) -> None:
    (repository / ".env").write_text("A=2\n")
    found = captured(repository, wait_s=5.0)["git"]
    assert (found["dirty"], found["diff"]["text"], found["diff"]["left_out"]) == (True, "", [".env"])


def test_a_clean_tree_is_said_to_be_clean(repository: Path) -> None:
    found = captured(repository, wait_s=60.0)["git"]

    assert (found["dirty"], found["diff"]) == (False, {"state": "complete", "text": ""})


def test_packed_refs_detached_heads_and_work_trees(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    packed = git_state(repository)
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    tree = git_state(tmp_path / "tree")
    git(repository, "checkout", "-q", "--detach")
    detached = git_state(repository)

    assert packed is not None
    assert tree is not None
    assert detached is not None
    assert (packed["commit"], packed["branch"]) == (commit, "topic/one")
    assert (tree["commit"], tree["branch"]) == (commit, "other")
    assert (detached["commit"], detached["branch"]) == (commit, None)


def test_a_large_diff_is_cut(repository: Path) -> None:
    (repository / "a.py").write_text("y = 123456789\n" * 200_000)

    found = captured(repository, wait_s=60.0)["git"]

    assert found["diff"]["state"] == "cut"
    assert len(found["diff"]["text"]) <= 1_000_000


def test_a_slow_git_is_not_waited_for_and_written_later(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nexec sleep 3600\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    written: list[bytes] = []
    by: list[int] = []

    def write(content: bytes) -> None:
        by.append(threading.get_ident())
        written.append(content)

    monkeypatch.setattr(environment, "GIT_LIMIT_S", 3600.0)
    EnvironmentCapture(repository).write(write)  # returns, though git does not end

    assert by == [threading.get_ident()]
    assert json.loads(written[0])["git"]["diff"] == {"state": "pending"}
    wait_until((tmp_path / "pid").exists, what="git")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # as the limit does
    wait_until(lambda: len(written) == 2, what="what is written later")
    assert by[1] != by[0]
    late = json.loads(written[1])
    assert "took too long" in late["git"]["diff"]["state"]
    assert late["git"]["commit"] == json.loads(written[0])["git"]["commit"]
    assert late["packages"] == json.loads(written[0])["packages"]


def test_git_is_given_up_at_the_limit(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    written: list[bytes] = []

    monkeypatch.setattr(environment, "GIT_LIMIT_S", 0.5)
    monkeypatch.setattr(environment, "DIFF_WAIT_S", 3600.0)
    EnvironmentCapture(repository).write(written.append)

    assert "took too long" in json.loads(written[0])["git"]["diff"]["state"]


def test_without_a_repository_there_is_no_git(tmp_path: Path) -> None:
    data = captured(tmp_path)

    assert data["git"] is None
    assert data["python"]["executable"] == sys.executable
    assert data["packages"]["numpy"]


def test_only_variables_that_matter_and_no_secrets() -> None:
    shown = shown_variables({
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOB_ID": "17",
        "RLA_FTP_PASSWORD": "hunter2",
        "RLA_PROXY": "http://me:hunter2@host/",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "HOME": "/root",
        "NCCL_AUTH_TOKEN": "hunter2",
    })  # fmt: skip

    assert shown == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_AUTH_TOKEN": HIDDEN,
        "RLA_FTP_PASSWORD": HIDDEN,
        "RLA_PROXY": f"http://me:{HIDDEN}@host/",
        "SLURM_JOB_ID": "17",
    }


def test_secrets_on_the_command_line_are_hidden() -> None:
    command = [
        "python",
        "train.py",
        "--api-key",
        "k1",
        "--token=t1",
        "PASSWORD=p1",
        "--lr",
        "0.1",
        "author",
        "x",
    ]

    assert hide_in_command(command) == [
        "python", "train.py", "--api-key", HIDDEN, f"--token={HIDDEN}", f"PASSWORD={HIDDEN}", "--lr", "0.1",
        "author", "x",
    ]  # fmt: skip


def test_package_versions_come_from_folder_names(tmp_path: Path) -> None:
    for name in ("My_Pkg-1.2.3.dist-info", "old-0.1-py3.10.egg-info", "nothing", "x.dist-info"):
        (tmp_path / name).mkdir()

    assert package_versions([str(tmp_path), "/nowhere"]) == {"my-pkg": "1.2.3", "old": "0.1"}
