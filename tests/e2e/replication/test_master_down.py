"""R9: three days without a master, on an injected clock: little work, jittered backoff, nothing doubled."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass, field

import pytest
from support.replication_lab import ITEM, Node, Sshd, random_bytes, same_trees

from rla_agent.replicate.registry import register
from rla_agent.replicate.worker.retry_backoff import FIRST_BACKOFF_S, MAX_BACKOFF_S, Health
from rla_agent.replicate.worker.worker import Replicator

FILES_PER_ITEM = 100
MANY_HOURS = 72


@dataclass
class Simulation:
    """A worker in this process; its clock goes as fast as it has nothing to do."""

    node: Node
    now: float = 1000.0
    cpu_s: float = 0.0
    turns: int = 0
    waits: list[tuple[float, int]] = field(default_factory=list)  # until the next try, failures in a row
    worker: Replicator = field(init=False)

    def __post_init__(self) -> None:
        self.worker = Replicator(self.node.state, self.node.host)

    def restart(self) -> None:
        """End the process and start another one."""
        self.worker.close()
        self.worker = Replicator(self.node.state, self.node.host)

    def advance(self, seconds: float) -> None:
        """Let the worker's clock run on."""
        end = self.now + seconds
        began = time.process_time()
        while self.now < end:
            self.turn()
            self.now += self.worker.tick(self.now)
        self.cpu_s += time.process_time() - began

    def turn(self) -> None:
        """One turn; what the senders do meanwhile takes no time on the worker's clock."""
        self.turns += 1
        before = {number: health.tries for number, health in self._health()}
        more = self.worker.turn(self.now)
        while more or any(served.database.link.busy for served in self.worker._served.values()):
            self.worker._wait(0.0 if more else 0.05)
            more = self.worker.turn(self.now)
        for number, health in self._health():
            if health.tries > before.get(number, 0):
                self.waits.append((health.not_before - self.now, health.tries))

    def _health(self) -> list[tuple[int, Health]]:
        return [(served.database.number, served.database.health) for served in self.worker._served.values()]

    def counted(self) -> tuple[int, int, int]:
        """Files that wait, files sent, bytes written."""
        databases = [served.database for served in self.worker._served.values()]
        return (
            sum(self.worker._ledger.backlog(database.number)["files"] for database in databases),
            sum(database.counters.sent_files for database in databases),
            sum(database.counters.written_bytes for database in databases),
        )


def queue(node: Node, files: int) -> int:
    """Items of ended runs; bytes of all."""
    for number in range(files // FILES_PER_ITEM):
        item = ITEM.replace("000001", f"{number:06d}")
        folder = node.item("results", item)
        for name in range(FILES_PER_ITEM - 1):
            (folder / f"{name}.bin").write_bytes(random_bytes(1000 + name, name))
        (node.run(item, state="finished") / "SHA256SUMS").write_bytes(b"")
    return sum(path.stat().st_size for path in node.root.rglob("*") if path.is_file())


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.parametrize(
    ("hours", "files"),
    [(3, 300), pytest.param(MANY_HOURS, 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])],
)
def test_a_master_that_is_down(hours: int, files: int, master: Sshd, node: Node) -> None:
    master.stop()
    register(node.state, node.root, node.config)
    size = queue(node, files)
    simulation = Simulation(node)
    try:
        for _ in range(2):
            simulation.advance(hours * 3600 / 2)
            waiting, sent, _ = simulation.counted()
            assert waiting >= files
            assert sent == 0
            simulation.restart()
        share = simulation.cpu_s / (hours * 3600)
        waits = simulation.waits
        print(f"{hours} h, {files} files: {share:.3%} of a core, {len(waits)} tries")  # noqa: T201 - figures
        assert hours < MANY_HOURS or share < 0.01
        check_backoff(waits)
        master.start()
        for _ in range(10_000):
            simulation.advance(1.0)
            if not simulation.counted()[0] and same_trees(node, master.root):
                break
        assert same_trees(node, master.root)
        _, sent, written = simulation.counted()
        assert sent >= files
        assert written <= 1.05 * size + 60 * sent  # a request's head
        simulation.restart()
        simulation.advance(120.0)
        assert simulation.counted()[:2] == (0, 0)
    finally:
        simulation.worker.close()


def check_backoff(waits: list[tuple[float, int]]) -> None:
    """1 s → 5 min with full jitter: anything up to the limit, and evenly."""
    for wait, tries in waits:
        assert 0 <= wait <= min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (tries - 1))
    late = [wait for wait, tries in waits if FIRST_BACKOFF_S * 2 ** (tries - 1) >= MAX_BACKOFF_S]
    assert len(late) >= 20
    assert 0.3 * MAX_BACKOFF_S < statistics.fmean(late) < 0.7 * MAX_BACKOFF_S
    assert min(late) < 0.25 * MAX_BACKOFF_S
    assert max(late) > 0.75 * MAX_BACKOFF_S
    assert all(first != second for first, second in itertools.pairwise(late))
