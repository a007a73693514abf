"""The pictures of docs/gallery can be made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_lab import find_chromium
from page_pictures import take

PNG = b"\x89PNG\r\n\x1a\n"
GALLERY = Path(__file__).resolve().parents[3] / "docs" / "gallery"


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_the_pictures_of_the_docs(tmp_path: Path) -> None:
    made = take(tmp_path)
    assert [path.name for path in made] == ["web-runs.png", "web-run.png", "web-machine.png"]
    for path in made:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 10_000
        assert not GALLERY.is_dir() or (GALLERY / path.name).is_file()  # it is not beside an installed wheel
