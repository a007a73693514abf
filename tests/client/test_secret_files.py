"""Files with keys and passwords are no code, whatever the rules say; what git tracks is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rla_client.code_files import BackupPlan, BackupReport, select_files
from rla_client.secret_files import is_secret_name

SECRETS = (
    ".ssh/id_ed25519", ".ssh/config", ".gnupg/x", ".aws/credentials", ".netrc", ".config/gh/hosts.yml",
    ".cache/a/b.py", ".kube/config", ".docker/config.json", "keys/server.pem", "id_rsa", "id_ed25519.pub",
    ".env", "sub/.env.local",
)  # fmt: skip


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def commit(root: Path, *names: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "--", *names], [*identity, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True)


def chosen(plan: BackupPlan, report: BackupReport | None = None) -> list[str]:
    return sorted(name for name, _ in select_files(plan, report or BackupReport()))


def test_they_stay_out_and_are_told(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "environment.py", ".github/w.yml", "secrets.py", "keys/a.py", *SECRETS)
    report = BackupReport()
    kept = [".github/w.yml", "environment.py", "keys/a.py", "secrets.py", "train.py"]
    assert chosen(BackupPlan(tmp_path), report) == kept
    assert {".ssh", ".netrc", "keys/server.pem"} <= {name for name, _, _ in report.left_out}
    assert "holds secrets" in str(report.warning())


@pytest.mark.parametrize(
    "plan",
    [
        {"code_dirs": (".ssh", "id_rsa", "train.py")},
        {"lib_mode": True, "lib_dir": ".", "run_files": ("id_rsa", "train.py")},
        {"code_dirs": ("train.py",), "run_files": ("id_rsa", ".ssh/id_ed25519")},
    ],
    ids=["named", "lib", "run files"],
)
def test_in_every_mode(tmp_path: Path, plan: dict[str, object]) -> None:
    put(tmp_path, "train.py", ".ssh/id_ed25519", "id_rsa")
    assert chosen(BackupPlan(tmp_path, **plan)) == ["train.py"]  # type: ignore[arg-type]


def test_links_to_them(tmp_path: Path) -> None:
    project = tmp_path / ".cache" / "project"
    put(project, "train.py", "other.py")
    put(tmp_path, ".ssh/deploy")
    (project / "harmless.txt").symlink_to(tmp_path / ".ssh" / "deploy")
    (project / "linked.py").symlink_to(project / "other.py")
    assert chosen(BackupPlan(project)) == ["linked.py", "other.py", "train.py"]


def test_what_git_tracks_is_kept(tmp_path: Path) -> None:
    put(tmp_path, "train.py", ".env", ".config/nextest.toml", ".config/private", "tests/server.pem")
    commit(tmp_path, ".config/nextest.toml", "tests/server.pem")
    report = BackupReport()
    assert chosen(BackupPlan(tmp_path), report) == [".config/nextest.toml", "tests/server.pem", "train.py"]
    assert [name for name, _, _ in report.left_out] == [".env"]


def test_of_a_tracked_link_git_has_no_content(tmp_path: Path) -> None:
    project = tmp_path / "project"
    put(project, "train.py", "certs/key.txt")
    put(tmp_path, ".ssh/deploy")
    (project / "harmless.txt").symlink_to(tmp_path / "project" / ".ssh" / "inside")
    put(project, ".ssh/inside")
    (project / "server.pem").symlink_to(tmp_path / ".ssh" / "deploy")
    commit(project, "harmless.txt", "server.pem")
    report = BackupReport()
    assert chosen(BackupPlan(project), report) == ["certs/key.txt", "train.py"]
    assert {"harmless.txt", "server.pem"} <= {name for name, _, _ in report.left_out}


def test_rules_hold_for_what_git_tracks_too(tmp_path: Path) -> None:
    put(tmp_path, "train.py", ".config/tool.toml", ".config/large/table.bin", ".config/x.bin")
    commit(tmp_path, ".")
    plan = BackupPlan(tmp_path, ignore_rules=("large/", "*.bin"))
    assert chosen(plan) == [".config/tool.toml", "train.py"]


def test_names() -> None:
    for name in ("environment.yml", "keyboard.py", "env.py", "id_rsa_test_helper".replace("rsa", "net")):
        assert not is_secret_name(name)
    for name in (".ENV", "server.PEM", "id_ecdsa", "id_ed25519_sk"):
        assert is_secret_name(name)
