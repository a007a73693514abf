"""One process at a time that asks the agent."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@pytest.fixture(autouse=True)
def some_run(make_run: MakeRun) -> None:
    make_run()


def test_the_agent_is_asked_by_one_process_at_a_time(
    root: Path, page_server: Callable[..., PageServer]
) -> None:
    server = page_server(root)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(server.ask("status"))) for _ in range(8)]
    most = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        listed = subprocess.run(
            ["ps", "--ppid", str(server.pid), "-o", "pid="], capture_output=True, text=True, check=False
        )
        most = max(most, len(listed.stdout.split()))
    assert len(answers) == 8
    assert most == 1
