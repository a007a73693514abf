"""Findings of `rla-agent doctor` about the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_agent.model.problem import Finding


def test_config(look: Callable[..., dict[str, Finding]], tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  colour: red\n")
    found = look()["config"]
    assert (found.level, "line 2: AGENT.colour" in found.what) == ("fault", True)
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  stall_s: 5\n")
    assert "config" not in look()
