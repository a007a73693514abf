"""Checkpoints of several machines on one master over sftp: agents are killed and links cut all the time."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faulty_link import Proxy
from support.replication_lab import Node, Sshd
from support.sharded_folders import check_whole, identity
from support.spread_saves import FOLDER, Machine, final_of
from support.waiting import TIME_FACTOR, wait_until

from rla_client.contract.sharded_checkpoint.folder import parts_of, read_whole
from rla_client.contract.sharded_checkpoint.records import SaveIdentity

STEPS = 3
MANY = 20
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)


class Oracle(threading.Thread):
    """Whatever the master calls whole must be so, all the time."""

    def __init__(self, there: Path) -> None:
        super().__init__(daemon=True)
        self.there = there
        self.faults: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.005):
            for path in self.there.glob("*.dcp"):
                before = read_whole(path)
                try:
                    if before is not None:
                        check_whole(path)
                except (AssertionError, OSError) as error:
                    if read_whole(path) == before:  # else it was replaced while we looked
                        self.faults.append(f"{path.name}: {error!r}"[:500])


def make_pair(make_node: Callable[..., Node], remote: dict[str, object]) -> list[tuple[Node, Machine]]:
    pair = []
    for name, ranks in (("a", (0, 1)), ("b", (2, 3))):
        node = make_node(remote, name, host=name)
        file = "run.json" if 0 in ranks else f"run.part.{name}.json"
        (node.item("log") / file).write_text(json.dumps({"host": name, "state": "running"}))
        pair.append((node, Machine(node.root, ranks)))
    return pair


def is_there(machine: Machine, save: SaveIdentity) -> bool:
    return machine.has_named(save) and parts_of(machine.folder) == []


@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.further), pytest.param(12, marks=pytest.mark.further)]
)
def test_agents_that_are_killed_and_links_that_are_cut(
    master: Sshd, proxy: Proxy, make_node: Callable[..., Node], rounds: int
) -> None:
    pair = make_pair(make_node, master.remote(proxy.port))
    there = master.root / FOLDER
    oracle = Oracle(there)
    oracle.start()
    draw = random.Random(4)
    last: dict[int, SaveIdentity] = {}
    for node, _ in pair:
        node.start()
    for order in range(1, rounds + 1):
        proxy.cut_after = lambda: draw.randrange(2_000, 60_000)
        for step in range(1, STEPS + 1):
            last[step] = identity(step, epoch=order, world=4)
            for _, machine in draw.sample(pair, 2):
                machine.save(last[step], order)
                time.sleep(draw.uniform(0, 0.3))
        end = time.monotonic() + draw.uniform(1, 4)
        while time.monotonic() < end:
            node = draw.choice(pair)[0]
            time.sleep(draw.uniform(0, 1.5))
            node.kill()
            node.start()
    proxy.cut_after = None
    for step, save in last.items():
        for _, machine in pair:
            told = f"{final_of(save)} on {machine.root}: {sorted(path.name for path in there.iterdir())}"
            wait_until(lambda machine=machine, save=save: is_there(machine, save), 90, told)  # type: ignore[misc]
        assert check_whole(there / final_of(save)) == rounds, step
    oracle.done.set()
    oracle.join()
    assert oracle.faults == []
    wait_until(lambda: list((there / ".rla-parts").iterdir()) == [], 60, "nothing left in the making")
    names = {f"checkpoint_{step}.dcp" for step in last}
    assert {path.name for path in there.iterdir()} == {*names, ".rla-parts"}
    for name in names:
        files = {str(path.relative_to(there / name)) for path in (there / name).rglob("*") if path.is_file()}
        assert files == {
            *(f"__{rank}_0.distcp" for rank in range(4)),
            *(f".rla/shard-{rank}.json" for rank in range(4)),
            ".metadata",
            ".rla/whole.json",
        }


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_twenty_machines_save_together(tmp_path: Path, make_node: Callable[..., Node]) -> None:
    """One rank each: all become whole in time, and what a save costs the master."""
    server = next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)
    if server is None:
        pytest.skip("no sftp-server that can log apart from sshd")
    log, telling = tmp_path / "requests", tmp_path / "sftp-server"
    telling.write_text(f'#!/bin/sh\nexec {server} -e -l DEBUG3 2>> "{log}"\n')
    telling.chmod(0o755)
    log.touch()
    master = Sshd(tmp_path / "sshd", sftp=str(telling)).start()
    try:
        machines = []
        for number in range(MANY):
            node = make_node(master.remote(), f"node-{number}", host=f"node-{number}")
            file = "run.json" if not number else f"run.part.node-{number}.json"
            told = {"host": node.host, "state": "running"}
            (node.item("log") / file).write_text(json.dumps(told))
            machines.append(Machine(node.root, (number,)))
            node.start()
        there = master.root / FOLDER
        for step in range(1, 6):
            save, order = identity(step, world=MANY), time.time_ns()
            begun, before = time.monotonic(), _requests(log)
            for machine in machines:
                machine.save(save, order)
            wait_until(
                lambda save=save: (there / final_of(save) / ".rla/whole.json").exists(),  # type: ignore[misc]
                60,
                final_of(save),
            )
            whole_s = time.monotonic() - begun
            for machine in machines:
                wait_until(lambda machine=machine, save=save: is_there(machine, save), 60)  # type: ignore[misc]
            named_s = time.monotonic() - begun
            assert check_whole(there / final_of(save)) == order
            after = _requests(log)
            kinds = {name: after[name] - before.get(name, 0) for name in after}
            counts = ", ".join(f"{name} {count / MANY:.1f}" for name, count in sorted(kinds.items()) if count)
            print(  # noqa: T201 - the soak's figures
                f"save {step} of {MANY} machines: whole after {whole_s:.1f} s, named everywhere after "
                f"{named_s:.1f} s; {sum(kinds.values()) / MANY:.0f} requests a machine: {counts}"
            )
            assert named_s < 60 * TIME_FACTOR
        assert list((there / ".rla-parts").iterdir()) == []
    finally:
        master.stop()


def _requests(log: Path) -> dict[str, int]:
    """What the SFTP server was asked so far, by kind."""
    found: dict[str, int] = {}
    for kind in re.findall(r"request \d+: (?!sent)(\S+)", log.read_text(errors="replace")):
        found[kind] = found.get(kind, 0) + 1
    return found
