"""Files with keys and passwords are no code, whatever the rules say; what git tracks is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.file_selection import secrets_among, select_files
from rla_client.code.secret_files import is_secret_name

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


@pytest.mark.parametrize(
    "name",
    [
        ".ENV", ".env.production", "prod.env", ".envrc", "server.PEM", "X.KEY", "a.p12", "a.pfx", "a.jks",
        "a.ppk", "b.kdbx", "a.keystore", "id_dsa", "id_ecdsa", "id_ed25519_sk", "deploy_id_rsa", ".Netrc",
        ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".htpasswd", ".vault_pass",
        "secrets.yaml", ".secrets.toml", "credentials", "my-credentials.json",
        "application_default_credentials.json", "service-account-1.json", "my-serviceAccountKey.json",
        "client_secret_1.json", "kaggle.json", "hf_token", "wandb_api_key.txt", "terraform.tfstate.backup",
        "prod.tfvars", ".env~", ".env.bak", "server.key.old", ".AWS", ".bash_history",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "environment.yml", "keyboard.py", "env.py", "id_net_test", ".env.example", ".env.sample",
        "a.env.template", "terraform.tfvars.example", "secrets.py", "credentials.py", "tokenizer.json",
        "tokens.json", "monkey.json", "keys.json", "secretary.json", "key.py", "author.txt",
        "secrets.example.yaml", "token.py", "settings",
    ],
)  # fmt: skip
def test_names_that_only_sound_like_one(name: str) -> None:
    assert not is_secret_name(name)


def test_what_was_changed_since_the_commit_is_secret(tmp_path: Path) -> None:
    put(tmp_path, "train.py", ".envrc", ".pgpass", ".npmrc")
    commit(tmp_path, ".envrc", ".pgpass", "train.py")
    put(tmp_path, "staged.pem")
    (tmp_path / ".envrc").write_text("changed")
    (tmp_path / ".pgpass").write_text("changed and staged")
    subprocess.run(["git", "add", ".pgpass", "staged.pem"], cwd=tmp_path, check=True)
    assert chosen(BackupPlan(tmp_path)) == ["train.py"]
    (tmp_path / ".envrc").write_text(".envrc")
    assert chosen(BackupPlan(tmp_path)) == [".envrc", "train.py"]


def test_of_every_configuration_with_a_password(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "sub/login")
    (tmp_path / "sub" / "rla_config.yaml").write_text(
        "REMOTE_SETTING: {password: x, credentials_file: login}\n"
    )
    assert chosen(BackupPlan(tmp_path)) == ["train.py"]


def test_the_launchers_list_is_the_same(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "secrets.py", *SECRETS)
    (tmp_path / "linked.txt").symlink_to(tmp_path / ".ssh" / "config")
    names = ["train.py", "secrets.py", "linked.txt", *SECRETS]
    assert set(secrets_among(names, tmp_path, ())) == {"linked.txt", *SECRETS}
