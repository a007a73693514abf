"""One run that a page shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


TABLE = "task"


def name(index: str) -> str:
    return f"0/{TABLE}/{index}"


@pytest.fixture
def server(root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]) -> PageServer:
    make_run()
    return page_server(root)


@pytest.fixture
def index(root: Path) -> str:
    return make_index(0)


def make_index(number: int) -> str:
    return f"2026/11/21/09-30-{number:02}-123456_10.0.0.5_&lr=0.1"


def rewrite(root: Path, index: str, file: str, **changes: Any) -> None:
    path = root / "log" / TABLE / index / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))
