"""Where and as whom the agent logs in."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from rla_agent.replicate import target_config
from rla_agent.replicate.backend.errors import BlockedError
from rla_agent.replicate.backend.ssh_login import resolve_login
from rla_client.config.schema import Config, RemoteSetting


def test_without_a_file_the_line_names_everything(tmp_path: Path) -> None:
    remote = RemoteSetting(ftp_server="m", port=2222, username="bob", remote_data_root="/srv/my data")
    login = resolve_login(remote, tmp_path)
    assert login.trust_command == "rla-agent trust m --port 2222 --user bob --root '/srv/my data'"
    login = resolve_login(remote, tmp_path, tmp_path / "rla_config.yaml")
    assert login.trust_command == f"rla-agent trust m --config {tmp_path / 'rla_config.yaml'}"


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    remote = RemoteSetting(ftp_server="master", password_env="RLA_TEST_PASSWORD")
    with pytest.raises(BlockedError, match="RLA_TEST_PASSWORD"):
        resolve_login(remote, tmp_path)
    monkeypatch.setenv("RLA_TEST_PASSWORD", "very-secret")
    login = resolve_login(remote, tmp_path)
    assert login.password == "very-secret"
    assert "very-secret" not in repr(login)
    secrets = tmp_path / "secrets"
    secrets.write_text("other: 1\nmaster: two words\n")
    secrets.chmod(0o644)
    remote = RemoteSetting(ftp_server="master", credentials_file=str(secrets))
    with pytest.raises(BlockedError, match="open to other users"):
        resolve_login(remote, tmp_path)
    secrets.chmod(0o600)
    assert resolve_login(remote, tmp_path).password == "two words"


def test_a_user_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in a container that does not know the uid
    remote = RemoteSetting(ftp_server="lab", identity_file="~/k", remote_data_root="data")
    assert (
        target_config.target(Config(remote_setting=remote), tmp_path).name == f"sftp://{os.getuid()}@lab/data"
    )
    with pytest.raises(BlockedError) as caught:
        resolve_login(remote, tmp_path)
    assert "REMOTE_SETTING.username" in caught.value.hint
    named = replace(remote, username="ada")
    assert Path("~/k") in resolve_login(named, tmp_path).key_files
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host lab\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BlockedError) as caught:
        resolve_login(named, tmp_path)
    assert "LOGNAME" in caught.value.hint
    monkeypatch.setenv("LOGNAME", "ada")
    assert resolve_login(remote, tmp_path).user == "ada"
