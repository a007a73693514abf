"""A run and a page that shows its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

if TYPE_CHECKING:
    from support.page_lab import Answer, PageServer
    from support.written_runs import MakeRun


TABLE = "task"
KINDS = ("log", "code", "checkpoint", "hyperparameter", "results")


@dataclass
class OneRun:
    """A run, and a page that shows it."""

    root: Path
    index: str
    server: PageServer

    @property
    def path(self) -> str:
        return f"0/{TABLE}/{self.index}"

    def folder(self, kind: str) -> Path:
        return self.root / kind / TABLE / self.index

    def ask(self, name: str, **asked: Any) -> Any:
        return self.server.ask(name, {"run": self.path, **asked})

    def refused(self, name: str, status: int = 400, **asked: Any) -> str:
        return self.server.refused(name, {"run": self.path, **asked}, status)

    def get(
        self, path: str, kind: str = "results", headers: dict[str, str] | None = None, **more: str
    ) -> Answer:
        asked = urlencode({"run": self.path, "kind": kind, "path": path, **more}, errors="surrogateescape")
        return self.server.get(f"/api/file?{asked}", headers)


@pytest.fixture
def one(root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]) -> OneRun:
    index = make_run(kinds=KINDS)
    return OneRun(root, index, page_server(root))
