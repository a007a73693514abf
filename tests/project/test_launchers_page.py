"""docs/how-to/launchers.md names every option and mode; tests/project/test_docs.py runs its programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla_client.launcher.options import Options
from rla_client.launcher.snapshot.snapshot_modes import SNAPSHOT_MODES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "launchers.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="no checkout: the installed wheel is tested")


def test_every_option_and_mode_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in (*Options.__dataclass_fields__, *SNAPSHOT_MODES):
        assert f"`{name}`" in text, name
