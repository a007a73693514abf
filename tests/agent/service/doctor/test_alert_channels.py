"""Findings about channels of alerts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding


@pytest.mark.slow
def test_alert_channels(
    fix: Callable[[Finding], None],
    agent: Any,
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = "{mail: {kind: email, to: a@b, server: s, username: u, credentials_file: pw}}"
    config = tmp_path / "rla_config.yaml"
    config.write_text(f"AGENT: {{alerts: {{channels: {channels}, rules: [{{when: nan, send: mail}}]}}}}\n")
    assert "No such file" in look()["alerts-secret"].what
    (tmp_path / "pw").write_text("x")
    (tmp_path / "pw").chmod(0o644)
    fix(look()["alerts-secret"])
    assert look() == {}
    monkeypatch.setenv("ONLY_HERE", "x")
    config.write_text(config.read_text().replace("credentials_file: pw", "password_env: ONLY_HERE"))
    assert "ONLY_HERE" in look()["alerts-secret"].what
    agent.restart()
    assert look() == {}


def test_alert_commands(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT: {alerts: {channels: {run: {kind: command, command: [./tell]}}}}\n")
    config.chmod(0o646)
    assert set(look()) == {"alerts-command", "alerts-unused"}
    fix(look()["alerts-command"])
    (tmp_path / "tell").write_text("#!/bin/sh\n")
    (tmp_path / "tell").chmod(0o755)
    assert set(look()) == {"alerts-unused"}
    config.write_text(config.read_text().replace("}}}}", "}}, rules: [{when: nan, send: run}]}}"))
    assert look() == {}
