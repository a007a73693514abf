"""Findings of `rla-agent doctor` about shared memory that is removed at logout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding


def test_remove_ipc(
    look: Callable[..., dict[str, Finding]], system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)  # logind spares root
    (system / "run/systemd/system").mkdir(parents=True)
    assert "loginctl enable-linger" in look(user="alice")["remove-ipc"].fix
    (system / "var/lib/systemd/linger/alice").touch()
    assert "remove-ipc" not in look(user="alice")
    assert "remove-ipc" in look(user="bob")
    (system / "etc/systemd/logind.conf").write_text("[Login]\nRemoveIPC=no\n")
    assert "remove-ipc" not in look(user="bob")
