"""What of `~/.ssh/config` counts."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

import pytest

from rla_agent.replicate.backend.ssh_login import resolve_login
from rla_client.config.schema import RemoteSetting
from rla_client.contract.errors import ConfigError


def test_ssh_config_aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        "Host lab\n  HostName 10.1.2.3\n  Port 2222\n  User ada\n  IdentityFile ~/k\n  ProxyJump gate\n"
    )
    login = resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)
    assert (login.address, login.port, login.user) == ("10.1.2.3", 2222, "ada")
    assert tmp_path / "k" in login.key_files
    assert login.proxy_command == "ssh -o BatchMode=yes -W 10.1.2.3:2222 gate"
    assert resolve_login(RemoteSetting(ftp_server="lab", port=22, username="bob"), tmp_path).user == "bob"


def test_an_ssh_config_that_includes_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    parts = tmp_path / ".ssh" / "conf.d"
    parts.mkdir(parents=True)
    (parts / "1").write_text("User ada\nHost other\n  Port 1\n")
    (parts / "2").write_text("Host lab\n  HostName 10.1.2.3\n")
    (tmp_path / "far").write_text(f"Include {tmp_path}/far\nPort 2222\n")  # itself, too
    (tmp_path / ".ssh" / "config").write_text('include conf.d/*\nHost lab\n  Include "~/far" none\n')
    login = resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)
    assert (login.address, login.port, login.user) == ("10.1.2.3", 2222, "ada")
    assert resolve_login(RemoteSetting(ftp_server="else"), tmp_path).port == 22
    (tmp_path / ".ssh" / "config").write_text('Include "conf.d\n')
    with pytest.raises(ConfigError, match="quot"):
        resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)


@pytest.mark.parametrize(
    ("config", "users"),
    [
        ("Include {}/*", {"lab": "", "gate": "gina", "box": "bob"}),
        ("Host lab\n  Include {}/*\n  User ada", {"lab": "ada", "gate": "", "box": ""}),
        ("Host box gate\nInclude {}/1\nHost *\nUser ada", {"lab": "ada", "gate": "gina", "box": "ada"}),
        ("Match originalhost box\nInclude {}/*", {"lab": "", "gate": "", "box": "bob"}),
        ("Host lab\nUser ada\nMatch user ada\nInclude {}/3\nUser eve", {"lab": "ada", "gate": "", "box": ""}),
        ("Host gate\nInclude {}/4\n", {"lab": "", "gate": "", "box": ""}),
    ],
)
def test_included_files_mean_the_hosts_that_ssh_takes_them_to_mean(
    config: str, users: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    parts = tmp_path / "conf.d"
    (parts / "a-folder").mkdir(parents=True)
    (parts / "1").write_text("Port 1\nHost gate\n  User gina\n")
    (parts / "2").write_text("Port 2\nHost box\n  User bob\n")
    (parts / "3").write_text("Port 3\n")
    (parts / "4").write_text(f"Host lab\n  Include {parts}/2\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(config.format(parts))
    for host, user in users.items():
        login = resolve_login(RemoteSetting(ftp_server=host), tmp_path)
        command = ["ssh", "-G", "-F", str(tmp_path / ".ssh" / "config"), host]
        ssh = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert login.user == (user or getpass.getuser())
        assert f"user {login.user}" in ssh
        assert f"port {login.port}" in ssh
