"""The pictures of docs/how-to/web can be made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.page_lab import find_chromium
from support.page_pictures import take

PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "web"


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_the_pictures_of_the_docs(tmp_path: Path) -> None:
    made = take(tmp_path)
    assert [path.stem for path in made] == ["runs", "parameters", "run", "files", "machine"]
    for path in made:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 10_000
        assert (
            not PICTURES.is_dir() or (PICTURES / path.name).is_file()
        )  # it is not beside an installed wheel
