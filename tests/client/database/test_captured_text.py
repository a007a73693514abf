from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla_client.database.captured_text import CAPTURED_NAME, captured_text


def test_the_line(tmp_path: Path) -> None:
    assert not captured_text(tmp_path)
    content = {
        "sources": {"tensorboard": {"values": 72}, "log_dir": {"parameters": 1}, "tyro": {"parameters": 28}},
        "skipped": {"tensorboard": {"image": [1, 27_000_000], "graph": [2, 0]}},
        "off": {"wandb": "TypeError: x"},
    }
    (tmp_path / CAPTURED_NAME).write_text(json.dumps(content))
    line = captured_text(tmp_path)
    end = "skipped: 1 image of 27.0 MB, 2 graphs; off: wandb"
    assert line == f"from tensorboard, tyro (28 parameters); {end}"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"sources": [1], "skipped": {"a": {"b": [1]}}, "off": 3}'])
def test_a_damaged_file(tmp_path: Path, text: str) -> None:
    (tmp_path / CAPTURED_NAME).write_text(text)
    assert captured_text(tmp_path) in {"", "nothing"}
