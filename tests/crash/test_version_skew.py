"""Releases that meet: an agent of one protocol version beside a client of the next, and the reverse.

The other release is this one with its version number changed before anything uses it, in a process of
its own: what a version must do about another one does not depend on what differs.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash.make_golden import messages
from support.waiting import DEADLINE_S

from rla_agent.service.control_client import ask_status
from rla_agent.service.stop_agent import stop_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.spool.protocol import PROTOCOL_VERSION, decode_message, encode_message
from rla_client.contract.spool.segments import segment_numbers, segment_path, stream_names

DATA = Path(__file__).with_name("data")
NEWER = PROTOCOL_VERSION + 1
AS_VERSION = """
import sys
import rla_client.contract.spool.protocol as protocol
protocol.PROTOCOL_VERSION = @
protocol._SEED = (@ - 1) << 16
for module in list(sys.modules.values()):
    if getattr(module, "PROTOCOL_VERSION", @) != @:
        module.PROTOCOL_VERSION = @
"""
AGENT = "from rla_agent.daemon import main; sys.exit(main())"
COMMAND = "from rla_agent.command.app import main; main()"
TRAINING = """
from rla_client import exp_manager, logger, time_step_holder
time_step_holder.set_time(1)
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
print("log", exp_manager.log_dir, flush=True)
number = 0
for line in sys.stdin:
    word, _, seconds = line.strip().partition(" ")
    if word == "flush":
        print("flushed", logger.flush(float(seconds)), flush=True)
    for _ in range(100):
        logger.record_tabular("number", number)
        logger.dump_tabular()
        number += 1
    print("rows", number, flush=True)
"""


def script(version: int, text: str) -> list[str]:
    return [sys.executable, "-c", AS_VERSION.replace("@", str(version)) + text]


class Client:
    """A training process of some version."""

    def __init__(self, version: int, root: Path, errors: Path) -> None:
        root.mkdir(exist_ok=True)
        self._errors = errors
        with errors.open("wb") as stream:
            self.process = subprocess.Popen(
                [*script(version, TRAINING), str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=stream, text=True,
            )  # fmt: skip
        self.log = Path(self.hear("log").split(" ", 1)[1].strip())

    def hear(self, word: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line
        pytest.fail(f"the training process ended: {self.errors}")

    def rows(self, *, flush_s: float = 0.0) -> bool:
        """Write 100 rows; whether a flush before them, of so many seconds, succeeded."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"flush {flush_s}\n" if flush_s else "go\n")
        self.process.stdin.flush()
        flushed = flush_s > 0 and "True" in self.hear("flushed")
        self.hear("rows")
        return flushed

    def end(self) -> None:
        self.process.communicate(timeout=60)

    @property
    def errors(self) -> str:
        return self._errors.read_text()


@pytest.fixture
def client(places: Places, tmp_path: Path) -> Iterator[Callable[[int], Client]]:
    made: list[Client] = []
    places.stopped_marker.touch()  # clients start no agent

    def start(version: int) -> Client:
        made.append(Client(version, tmp_path / "data", tmp_path / f"errors-{len(made)}"))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        if not one.process.stdin.closed:  # type: ignore[union-attr]
            one.process.communicate()


@pytest.fixture
def agent_of(
    places: Places, tmp_path: Path, wait_until: Callable[..., Any]
) -> Iterator[Callable[[int], int]]:
    """`agent_of(version)`: pid of a serving agent of a version."""
    made: list[subprocess.Popen[bytes]] = []

    def start(version: int) -> int:
        with (tmp_path / "agent.log").open("ab") as log:
            made.append(
                subprocess.Popen(script(version, AGENT), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )
        wait_until(
            lambda: served(places) == made[-1].pid,
            what=lambda: f"a serving agent; {(tmp_path / 'agent.log').read_text()[-2000:]}",
        )
        return made[-1].pid

    yield start
    for process in made:
        process.kill()
        process.wait()


def served(places: Places) -> int:
    try:
        return int(ask_status(places, 1.0)["agent"]["pid"])
    except Exception:  # noqa: BLE001 - not yet
        return 0


def stored(log: Path) -> list[int]:
    try:
        with (log / "progress.csv").open() as file:
            return [int(row["number"]) for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []


@pytest.mark.slow
def test_a_newer_client_spools_and_warns_once(
    agent_of: Callable[[int], int],
    client: Callable[[int], Client],
    places: Places,
    wait_until: Callable[..., Any],
) -> None:
    """Its rows wait, others' go on; after the upgrade each row is there once."""
    agent_of(PROTOCOL_VERSION)
    newer, same = client(NEWER), client(PROTOCOL_VERSION)
    for _ in range(3):
        newer.rows()
    assert not newer.rows(flush_s=2)
    assert same.rows() is False
    assert same.rows(flush_s=DEADLINE_S), "a client of the agent's own version is served"
    status = ask_status(places)
    (problem,) = [p for p in status["problems"] if "frame version" in p["what"]]
    assert problem["fix"].startswith("update rla-agent")
    assert any("newer client version" in p["what"] for p in status["problems"])
    assert newer.errors.count("rla-agent restart") == 1, newer.errors
    assert "older release" not in same.errors
    assert stored(newer.log) == []
    newer.end()
    same.end()
    stop_agent(places)
    assert len(stream_names(places.spool)) == 1, "it is kept"
    agent_of(NEWER)
    wait_until(lambda: stored(newer.log) == list(range(400)), what="the replay after the upgrade")
    wait_until(lambda: not stream_names(places.spool))
    assert stored(same.log) == list(range(200))
    assert ask_status(places)["problems"] == []


@pytest.mark.slow
def test_an_upgrade_in_the_middle_of_a_stream(
    agent_of: Callable[[int], int],
    client: Callable[[int], Client],
    places: Places,
    wait_until: Callable[..., Any],
) -> None:
    """Frames of this version, then of the next: the first part is taken in, the rest after the upgrade."""
    old, new = client(PROTOCOL_VERSION), client(NEWER)
    for one in (old, new):
        one.rows()
        one.end()
    first, second = stream_names(places.spool)
    if str(old.log).encode() not in segment_path(places.spool / first, 1).read_bytes() and (
        old.log.name.encode() not in segment_path(places.spool / first, 1).read_bytes()
    ):
        first, second = second, first
    (number,) = segment_numbers(places.spool / first)
    with segment_path(places.spool / first, number).open("ab") as file:
        file.write(segment_path(places.spool / second, 1).read_bytes())
    agent_of(PROTOCOL_VERSION)
    wait_until(lambda: stored(old.log) == list(range(100)))

    def parked() -> list[str]:
        streams = [stream for volume in ask_status(places)["volumes"] for stream in volume["streams"]]
        return [stream["parked"] for stream in streams if stream["parked"]]

    (reason,) = wait_until(parked)
    assert f"frame version {NEWER}" in reason
    stop_agent(places)
    assert (places.spool / first).exists()
    agent_of(NEWER)
    wait_until(lambda: stored(old.log) == [*range(100), *range(100)], what="the rest")
    wait_until(lambda: stored(new.log) == list(range(100)))
    wait_until(lambda: not stream_names(places.spool))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_an_agent_killed_while_it_parks(
    agent_of: Callable[[int], int], client: Callable[[int], Client], places: Places,
    wait_until: Callable[..., Any], number: int,
) -> None:  # fmt: skip
    """Downgrade and upgrade, with SIGKILL in between, at different moments."""
    newer = client(NEWER)
    newer.rows()
    for version in (PROTOCOL_VERSION, NEWER, PROTOCOL_VERSION)[number:]:
        pid = agent_of(version)
        newer.rows()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: served(places) == 0)
    newer.end()
    agent_of(NEWER)
    expected = list(range(100 * (1 + 3 - number)))
    wait_until(lambda: stored(newer.log) == expected)
    wait_until(lambda: not stream_names(places.spool))
    assert stored(newer.log) == expected


def test_an_older_client_is_served(
    agent_of: Callable[[int], int], client: Callable[[int], Client], places: Places
) -> None:
    """Rows, and answers in a version that it reads."""
    agent_of(NEWER)
    older = client(PROTOCOL_VERSION)
    older.rows()
    assert older.rows(flush_s=DEADLINE_S)
    assert stored(older.log)[:100] == list(range(100))
    assert older.rows(flush_s=DEADLINE_S)
    older.end()
    assert older.errors == ""
    assert ask_status(places)["agent"]["state"] == "serving", "so is an older command"


def test_a_newer_command_speaks_with_an_older_agent(agent_of: Callable[[int], int], places: Places) -> None:
    """`rla-agent status` and `restart` after an upgrade, while the former agent still serves."""
    pid = agent_of(PROTOCOL_VERSION)
    done = subprocess.run(
        [*script(NEWER, COMMAND), "status", "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["agent"]["pid"]) == (0, pid), done.stderr
    done = subprocess.run(
        [*script(NEWER, COMMAND), "stop"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    del places


@pytest.mark.parametrize("version", range(1, PROTOCOL_VERSION + 1))
def test_messages_of_each_version_decode(version: int) -> None:
    golden = json.loads((DATA / f"messages-v{version}.json").read_text())
    assert golden
    for one in golden:
        assert decode_message(bytes.fromhex(one["bytes"])) == (one["kind"], one["header"])
    if version == PROTOCOL_VERSION:
        assert [one["bytes"] for one in golden] == [encode_message(*message).hex() for message in messages()]


def test_a_message_of_a_later_version_is_known_as_one() -> None:
    with pytest.raises(UnknownVersionError):
        decode_message(encode_message(1, {}, version=NEWER))
    assert decode_message(encode_message(1, {"a": 1}, version=PROTOCOL_VERSION)) == (1, {"a": 1})
