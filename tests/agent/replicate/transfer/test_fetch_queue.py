from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rla_agent.replicate.agent_side import Replication
from rla_agent.replicate.transfer.fetch_queue import MAX_FETCHES, FetchQueue, _Fetch
from rla_agent.store.config_reader import ConfigReader
from rla_client.contract.agent.places import Places


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    made = FetchQueue(tmp_path)
    yield made
    made.stop()


def test_an_answer_is_given_once_and_says_what_is_wrong(
    desk: FetchQueue, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    question = {"folder": str(tmp_path), "name": "checkpoint_1.pt"}
    assert desk.ask(question) == {"fetch": "working"}
    assert desk._running
    answers = []

    def ended() -> bool:
        answers.append(desk.ask(question))
        return bool(answers[-1]["fetch"] != "working")

    wait_until(ended)
    assert answers[-1]["fetch"] == "failed"
    assert "neither here nor noted" in answers[-1]["error"]
    assert desk.ask(question) == {"fetch": "working"}  # asked anew, it is looked for anew


def test_names_that_leave_the_folder_are_refused(
    desk: FetchQueue, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    for name in ("../x", "a/b", ""):
        found: list[dict[str, Any]] = []
        question = {"folder": str(tmp_path), "name": name}

        def ended(question: dict[str, Any] = question, found: list[dict[str, Any]] = found) -> bool:
            found.append(desk.ask(question))
            return bool(found[-1]["fetch"] != "working")

        wait_until(ended)
        assert found[-1]["fetch"] == "failed"


def test_what_is_no_question(desk: FetchQueue) -> None:
    assert desk.ask({"folder": b"bytes"})["fetch"] == "failed"
    assert desk.ask({"folder": "x" * 100_000})["fetch"] == "failed"
    assert not desk._running


def test_only_so_many_at_a_time(desk: FetchQueue, tmp_path: Path) -> None:
    for number in range(3 * MAX_FETCHES):
        assert desk.ask({"folder": str(tmp_path), "name": f"{number}.pt"}) == {"fetch": "working"}
    assert len(desk._running) <= MAX_FETCHES


def test_a_process_that_fails_badly_says_why(desk: FetchQueue, wait_until: Callable[..., Any]) -> None:
    answers = []

    def ended() -> bool:
        answers.append(desk.ask({"resume": "no question"}))
        return bool(answers[-1]["fetch"] != "working")

    wait_until(ended)
    assert answers[-1]["fetch"] == "failed"
    assert "AttributeError" in answers[-1]["error"]


def test_a_fetch_that_nobody_asks_about_leaves_no_zombie(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    replication = Replication(Places(tmp_path / "state", tmp_path / "runtime"), ConfigReader())
    (tmp_path / "state").mkdir(mode=0o700)
    try:
        replication.fetches.ask({"folder": str(tmp_path), "name": "x.pt"})
        (fetch,) = replication.fetches._running.values()

        def waited_for() -> bool:
            replication.poll(0.0)  # as the agent does at each turn
            return not psutil.pid_exists(fetch.process.pid)

        wait_until(waited_for)
        assert not replication.fetches._running
    finally:
        replication.stop(1.0)


class _Hung(subprocess.Popen[bytes]):
    """A process that a dead disk holds in the kernel."""

    def __init__(self) -> None:
        self.pid = 1
        self.returncode = None

    def terminate(self) -> None:
        pass

    kill = terminate

    def __del__(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "for ever"
        raise subprocess.TimeoutExpired("fetch", timeout)


def test_a_fetch_that_hangs_in_the_kernel_keeps_nobody_from_ending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent waited for it without end, and so did what is stopped after it."""
    queue = FetchQueue(tmp_path)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        queue._running["one"] = _Fetch(_Hung(), output, errors)
        queue.stop()
    assert not queue._running
    assert "does not exit; the agent stops without it" in caplog.text
