"""Findings of `rla-agent doctor` about interpreters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding


def test_an_interpreter_that_others_can_exchange(
    fix: Callable[[Finding], None],
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    program.parent.chmod(0o777)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        found = look()["interpreter-unsafe"]
        assert str(program) in found.what
        fix(found)
        assert look() == {}
