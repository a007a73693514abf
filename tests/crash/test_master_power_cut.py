"""The master loses its power some seconds after "nothing waiting": what it lost is noticed and mended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.loop_disk import LoopDisk, needs_loop_disk
from support.power_master import NO_FSYNC, PowerMaster, wait_for_nothing
from support.replication_lab import ITEM, Node, random_bytes

from rla_agent.replicate.registry import register

pytestmark = [pytest.mark.root, needs_loop_disk]

SMALL_FILES = 40
MEND_S = 40.0  # times TIME_FACTOR: two minutes
GROWING = (".csv", ".txt")


def fill(node: Node, number: int, chance: random.Random) -> Path:
    """A run of small files, a checkpoint and two logs; the folder of its logs."""
    item = ITEM.replace("000001", f"{number:06d}")
    for count in range(SMALL_FILES):
        folder = node.item(("results", "code", "tmp_data")[count % 3], item) / f"sub{count % 4}"
        folder.mkdir(exist_ok=True)
        (folder / f"{count}.bin").write_bytes(random_bytes(chance.randrange(20_000), count * 1000 + number))
    (node.item("checkpoint", item) / f"checkpoint_{number}.pt").write_bytes(random_bytes(3_000_000, number))
    log = node.run(item)
    (log / "progress.csv").write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(2000)))
    (log / "log.txt").write_text("begun\n")
    return log


def cut_often(
    node: Node, master: PowerMaster, chance: random.Random, *, cuts: int, within_s: float, syncs: bool
) -> int:
    """Cut `cuts` times within `within_s` of "nothing waiting"; how many files were lost and mended."""
    lost = 0
    for number in range(cuts):
        log = fill(node, number, chance)
        wait_for_nothing(node, master, 60)
        for name in ("progress.csv", "log.txt"):  # rows that come after it, in place
            with (log / name).open("a") as file:
                file.writelines(f"{n},{n}\n" for n in range(chance.randrange(1, 50)))
        wait_for_nothing(node, master, 60)
        until = time.monotonic() + chance.random() * within_s
        while time.monotonic() < until:
            time.sleep(0.1)
        wait_for_nothing(node, master, 60)  # a late notice of a file may have it looked at once more
        master.cut()
        found = master.differences(node)
        lost += len(found)
        if syncs:
            assert [path for path in found if not path.endswith(GROWING)] == [], "a synced file is not there"
        master.server.start()
        wait_for_nothing(node, master, MEND_S)
    return lost


@pytest.fixture
def make(
    tmp_path: Path, loop_disk: Callable[..., LoopDisk]
) -> Iterator[Callable[[bool], tuple[Node, PowerMaster]]]:
    """`make(syncs)`: a node whose replicator runs, and its master, whose server can sync or not."""
    made: list[tuple[Node, PowerMaster]] = []

    def make(syncs: bool) -> tuple[Node, PowerMaster]:
        sftp = "internal-sftp" if syncs else NO_FSYNC
        master = PowerMaster(loop_disk("disk", 512), tmp_path / "sshd", sftp=sftp)
        node = Node(tmp_path / "node", master.remote())
        register(node.state, node.root, node.config)
        made.append((node.start(), master))
        return made[-1]

    yield make
    for node, master in made:
        node.kill()
        master.server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "syncs", [True, pytest.param(False, marks=pytest.mark.further)], ids=["fsync", "no-fsync"]
)
@pytest.mark.parametrize(
    ("cuts", "within_s"),
    [(2, 3.0), pytest.param(20, 60.0, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_what_the_master_loses_is_sent_again(
    make: Callable[[bool], tuple[Node, PowerMaster]],
    chance: random.Random,
    cuts: int,
    within_s: float,
    syncs: bool,
) -> None:
    node, master = make(syncs)
    lost = cut_often(node, master, chance, cuts=cuts, within_s=within_s, syncs=syncs)
    print(
        f"{cuts} power cuts of the master, {'' if syncs else 'no '}fsync: {lost} file(s) lost and sent again"
    )


@pytest.mark.slow
def test_a_restarted_agent_looks_at_what_was_acknowledged(
    make: Callable[[bool], tuple[Node, PowerMaster]], chance: random.Random
) -> None:
    """Nothing is to be sent, and no session was open: it begins one to look."""
    node, master = make(False)
    fill(node, 0, chance)
    wait_for_nothing(node, master, 60)
    node.stop()
    master.cut()
    assert master.differences(node), "nothing was lost: the test shows nothing"
    master.server.start()
    node.start()
    wait_for_nothing(node, master, MEND_S)
    assert "has lost or damaged" in node.log()
