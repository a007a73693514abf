"""Alerts of a script."""

from __future__ import annotations

from pathlib import Path

from rla_client.manager import ExpManager


def test_an_alert_of_any_text(manager: ExpManager) -> None:
    manager.alert("\udc80", "cannot read \udcff.bin")
    assert manager.flush(60)
    assert r"\udc80: cannot read \udcff.bin" in (Path(str(manager.log_dir)) / "warn.txt").read_text()
