"""Findings about secrets in the agent's environment."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding


@pytest.mark.slow
def test_password_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  password_env: MASTER_PASSWORD\n"
    (tmp_path / "rla_config.yaml").write_text(remote)
    agent = new_agent().start()
    assert "MASTER_PASSWORD" in look()["service-password"].fix
    monkeypatch.setenv("MASTER_PASSWORD", "x")
    agent.restart()
    assert look() == {}


@pytest.mark.slow
def test_a_buckets_variables_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  file_transfer_protocol: s3\n  bucket: lab\n"
    (tmp_path / "rla_config.yaml").write_text(remote)
    agent = new_agent().start()
    assert "service-bucket" not in look()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert "AWS_ACCESS_KEY_ID" in look()["service-bucket"].fix
    agent.restart()
    assert look() == {}


@pytest.mark.slow
def test_ssh_agent_of_the_service(
    new_agent: Any, look: Callable[..., dict[str, Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rla_config.yaml").write_text("SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    agent = new_agent().start()
    assert look() == {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "ssh"))
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "ssh"))
        assert "has none" in look()["service-ssh-agent"].what
        agent.restart()
        assert look() == {}
    (tmp_path / "ssh").unlink()
    assert "gone" in look()["service-ssh-agent"].what
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  identity_file: ~/.ssh/id\n"
    )
    assert look() == {}


def test_credentials_file(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  ftp_server: master\n  credentials_file: secret\n"
    )
    assert "No such file" in look()["credentials"].what
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o644)
    fix(look()["credentials"])
    assert look() == {}
