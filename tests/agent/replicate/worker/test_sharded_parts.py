"""Two agents, each with a data root, bring their parts of a save together on a master."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.killed_child import killed_at
from support.replication_lab import ITEM, Node
from support.sharded_folders import RUN, check_whole, identity, parts_path
from support.spread_saves import FOLDER, Machine, final_of, name_of
from support.waiting import TIME_FACTOR

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.ledger_rows import CLEAN, DIRTY, PRUNED
from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.status_text import as_text
from rla_agent.replicate.transfer.fetch_pruned import fetch_sharded_back, settle_parts
from rla_agent.replicate.worker import changed_files, sharded_master, sharded_parts
from rla_agent.replicate.worker.scan import Folder
from rla_agent.replicate.worker.sharded_parts import WaitingParts
from rla_agent.replicate.worker.worker import Replicator
from rla_client.config.schema import load_config
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import FetchError
from rla_client.contract.layout import CHECKPOINT, PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.finish import finish_on_master
from rla_client.contract.sharded_checkpoint.folder import look
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.records import SaveIdentity
from rla_client.contract.sharded_checkpoint.retention import remove_superseded_sharded
from rla_client.contract.sharded_checkpoint.step import whole_of

SAVE = identity(world=4)


class Agent:
    """A node with its worker, in this process."""

    def __init__(
        self, folder: Path, remote: dict[str, object], ranks: tuple[int, ...], **agent: object
    ) -> None:
        self.node = Node(folder, remote, dict(agent), host=folder.name)
        register(self.node.state, self.node.root, self.node.config)
        log = self.node.item("log")
        name = "run.json" if 0 in ranks else f"run.part.{folder.name}.json"
        (log / name).write_text(json.dumps({"host": self.node.host, "state": "running"}))
        self.target = target_config.target(
            load_config(self.node.config), registry.folder(self.node.state)
        ).name
        self.machine = Machine(self.node.root, ranks, self.target)
        self.worker: Replicator | None = None
        self.open()

    def open(self) -> None:
        self.worker = Replicator(self.node.state, self.node.host)

    def turn(self) -> bool:
        assert self.worker is not None
        return self.worker.turn(time.monotonic())

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def rows(self) -> dict[str, int]:
        """Path → state of each file of the checkpoints that the ledger knows."""
        with closing(sqlite3.connect(self.node.state / "replicate/ledger.db")) as db:
            query = "SELECT d.path, f.name, f.state FROM files f JOIN folders d ON d.id = f.folder"
            rows = db.execute(query).fetchall()
        paths = {os.fsdecode(folder + b"/" + name): state for folder, name, state in rows}
        below = f"{FOLDER}/"
        return {path.removeprefix(below): state for path, state in paths.items() if path.startswith(below)}

    def rows_after_a_look(self) -> dict[str, int]:
        """What `rows` tells once the item's own folder was listed, with nothing in it."""
        assert self.worker is not None
        (served,) = self.worker._served.values()
        item = os.fsencode(FOLDER)
        served.database.parts.see(Folder(item, CHECKPOINT, item, live=True, files={}), ())
        self.worker._ledger.commit()
        return self.rows()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent."""
        return DIRTY not in self.rows().values()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in the making, or to be sent."""
        return not any(PARTS_FOLDER in path or state == DIRTY for path, state in self.rows().items())

    @property
    def sent(self) -> int:
        """Bytes that this worker has written to the master."""
        assert self.worker is not None
        return sum(served.database.counters.written_bytes for served in self.worker._served.values())


class Pair:
    """Two agents and a master."""

    def __init__(self, folder: Path, **agent: object) -> None:
        self.master = folder / "master"
        self.master.mkdir()
        remote: dict[str, object] = {"file_transfer_protocol": "folder", "remote_data_root": str(self.master)}
        self.remote, self.folder = remote, folder
        self.a = Agent(folder / "a", remote, (0, 1), **agent)
        self.b = Agent(folder / "b", remote, (2, 3), **agent)
        self.there = self.master / FOLDER

    def until(self, condition: Callable[[], object], what: str, *agents: Agent) -> None:
        end = time.monotonic() + 20 * TIME_FACTOR
        while not condition():
            assert time.monotonic() < end, what
            more = [agent.turn() for agent in agents or (self.a, self.b)]
            if not any(more):
                time.sleep(0.02)

    def until_named(self, save: SaveIdentity = SAVE) -> None:
        """Until the save has its name everywhere, and the ledgers know it."""
        agents = (self.a, self.b)
        self.until(lambda: all(one.machine.has_named(save) for one in agents), "its name")
        self.until(lambda: all(one.is_settled for one in agents), "settled rows")

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(sharded_parts, "LOOK_S", 0.05)
    monkeypatch.setattr(sharded_master, "STAND_BY_S", 0.0)
    made = Pair(tmp_path)
    yield made
    made.close()


def of_whole(save: SaveIdentity, ranks: tuple[int, ...]) -> dict[str, int]:
    """The rows of a save that is whole on the master, on the machine of some ranks."""
    final = final_of(save)
    rows = {f"{final}/__{rank}_0.distcp": CLEAN if rank in ranks else PRUNED for rank in range(save.world)}
    rows.update({f"{final}/.rla/shard-{rank}.json": CLEAN for rank in ranks})
    rows[f"{final}/.metadata"] = CLEAN if 0 in ranks else PRUNED
    return {**rows, f"{final}/.rla/whole.json": PRUNED}


@pytest.mark.slow
def test_what_two_machines_wrote_becomes_whole_on_the_master(pair: Pair) -> None:
    pair.a.machine.save(SAVE)
    words = "checkpoint_1: 2 of 4 shards are on the master; missing: rank 2, 3"
    pair.until(lambda: words in as_text(replication_status(pair.a.node.state)), "status", pair.a)
    assert not (pair.there / final_of(SAVE)).exists()
    pair.b.machine.save(SAVE)
    pair.until_named()
    check_whole(pair.there / final_of(SAVE))
    assert list((pair.there / PARTS_FOLDER).iterdir()) == []
    for one in (pair.a, pair.b):
        assert one.rows() == of_whole(SAVE, one.machine.ranks)
    pair.until(lambda: words not in as_text(replication_status(pair.a.node.state)), "status")


def test_nothing_is_sent_again_by_an_agent_that_was_away_at_the_publication(pair: Pair) -> None:
    """Its rows follow the files, whenever it looks again."""
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    sent = {f"{PARTS_FOLDER}/{name_of(SAVE)}/{name}": CLEAN for name in ("__0_0.distcp", "__1_0.distcp")}
    pair.until(lambda: sent.items() <= pair.a.rows().items() and pair.a.is_idle, "a's part", pair.a)
    pair.a.close()
    pair.until(lambda: pair.b.machine.has_named(SAVE), "b's name", pair.b)
    settle_parts(pair.a.node.state, pair.a.machine.folder, None)
    assert pair.a.machine.has_named(SAVE)
    pair.a.open()
    before = os.stat(pair.there / final_of(SAVE) / ".metadata").st_ino
    pair.until(lambda: of_whole(SAVE, (0, 1)).items() <= pair.a.rows().items(), "rows", pair.a)
    assert pair.a.sent < (pair.there / final_of(SAVE) / ".metadata").stat().st_size
    assert os.stat(pair.there / final_of(SAVE) / ".metadata").st_ino == before
    check_whole(pair.there / final_of(SAVE))


@pytest.mark.slow
def test_an_agent_that_was_killed_before_the_name_was_taken_goes_on(pair: Pair) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    sent = {f"{PARTS_FOLDER}/{name_of(SAVE)}/.rla/{name}": CLEAN for name in ("metadata", "shard-1.json")}
    pair.until(lambda: sent.items() <= pair.a.rows().items() and pair.a.is_idle, "a's part", pair.a)
    pair.a.close()
    pair.until(lambda: pair.b.machine.has_named(SAVE), "b's name", pair.b)
    pair.b.close()
    content, calls = (pair.there / final_of(SAVE) / ".rla/whole.json").read_bytes(), 0
    while note_of_whole(parts_path(pair.a.machine.folder, SAVE)) is None:
        assert killed_at(
            calls, partial(finish_on_master, pair.a.machine.folder, content, FOLDER, pair.a.target)
        )
        calls += 1
    for one in (pair.a, pair.b):
        one.open()
    pair.until_named()
    assert pair.a.rows() == of_whole(SAVE, (0, 1))
    assert list((pair.there / PARTS_FOLDER).iterdir()) == []
    check_whole(pair.there / final_of(SAVE))


@pytest.mark.further
@pytest.mark.slow
def test_one_that_retention_took_before_its_folder_was_looked_at_stays_whole_there(pair: Pair) -> None:
    now = time.time_ns() + 10**9  # as rank 0 tells it; later than the files, as the note of what goes is
    for one in (pair.a, pair.b):
        one.machine.save(SAVE, order=now)
    sent = {f"{PARTS_FOLDER}/{name_of(SAVE)}/.rla/{name}": CLEAN for name in ("metadata", "shard-1.json")}
    pair.until(lambda: sent.items() <= pair.a.rows().items() and pair.a.is_idle, "a's part", pair.a)
    pair.until(lambda: pair.b.machine.has_named(SAVE), "b's name", pair.b)
    folder, content = pair.a.machine.folder, (pair.there / final_of(SAVE) / ".rla/whole.json").read_bytes()
    finish_on_master(folder, content, FOLDER, pair.a.target)
    rows = pair.a.rows_after_a_look()
    assert rows[f"{final_of(SAVE)}/__0_0.distcp"] == CLEAN
    later = identity(2, world=4)
    for one in (pair.a, pair.b):
        one.machine.save(later, order=now + 1)
    receipts = {
        **look(folder, name_of(later)).receipts,
        **look(pair.b.machine.folder, name_of(later)).receipts,
    }
    finish_on_master(folder, whole_of(receipts).encode(), FOLDER, pair.a.target)
    assert remove_superseded_sharded(folder, "checkpoint", RUN, Retention(1)) == [final_of(SAVE)]
    pair.until(lambda: CLEAN not in {
        state for path, state in pair.a.rows().items() if path.startswith(final_of(SAVE))
    }, "known to be gone", pair.a)  # fmt: skip
    until = time.monotonic() + 2.0
    pair.until(lambda: time.monotonic() > until and pair.a.is_idle, "what is to go is gone", pair.a)
    check_whole(pair.there / final_of(SAVE))


def test_one_that_takes_its_name_during_a_look_is_known_to_be_whole(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the master's files would go with the ones here that retention takes before the next look."""
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    sent = {f"{PARTS_FOLDER}/{name_of(SAVE)}/.rla/{name}": CLEAN for name in ("metadata", "shard-1.json")}
    pair.until(lambda: sent.items() <= pair.a.rows().items() and pair.a.is_idle, "a's part", pair.a)
    pair.until(lambda: pair.b.machine.has_named(SAVE), "b's name", pair.b)
    content = (pair.there / final_of(SAVE) / ".rla/whole.json").read_bytes()
    looks = WaitingParts._moved

    def at_this_moment(*arguments: Any) -> Any:  # a sender's thread
        finish_on_master(pair.a.machine.folder, content, FOLDER, pair.a.target)
        return looks(*arguments)

    monkeypatch.setattr(WaitingParts, "_moved", at_this_moment)
    rows = pair.a.rows_after_a_look()
    assert rows[f"{final_of(SAVE)}/__0_0.distcp"] == CLEAN
    assert rows[f"{final_of(SAVE)}/.rla/whole.json"] == PRUNED


@pytest.mark.slow
def test_a_part_of_a_run_that_is_over_goes_at_once(pair: Pair) -> None:
    """Nobody looks at all of it before a minute has passed; but its folders are watched."""
    log = pair.a.node.root / "log" / ITEM / "run.json"
    log.write_text(json.dumps({"host": pair.a.node.host, "state": "finished"}))
    pair.until((pair.master / "log" / ITEM / "run.json").exists, "run.json", pair.a)
    until = time.monotonic() + 3 * changed_files.LIVE_S
    pair.until(lambda: time.monotonic() > until, "it rests", pair.a)
    pair.a.machine.save(SAVE)
    assert pair.a.worker is not None
    assert pair.a.rows() == {}
    (served,) = pair.a.worker._served.values()
    told = parts_path(pair.a.machine.folder, SAVE) / ".rla/part.json"
    served.database.changes.hint(os.fsencode(told.relative_to(pair.a.node.root)), time.monotonic())
    pair.a.worker._ledger.commit()
    assert len(pair.a.rows()) == 5


@pytest.mark.slow
def test_what_the_master_lost_of_a_part_is_sent_again(pair: Pair) -> None:
    pair.a.machine.save(SAVE)
    making = pair.there / PARTS_FOLDER / name_of(SAVE)
    pair.until(lambda: (making / ".rla/shard-1.json").exists() and pair.a.is_idle, "a's part", pair.a)
    shutil.rmtree(making)
    pair.b.machine.save(SAVE)
    pair.until_named()
    check_whole(pair.there / final_of(SAVE))


def look_at_all(agent: Agent) -> None:
    """What is not confirmed is looked at on the master."""
    assert agent.worker is not None
    (served,) = agent.worker._served.values()
    served.database.look_now()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("__1_0.distcp", "gone"),
        ("__1_0.distcp", "empty"),
        (".rla/shard-1.json", "empty"),
        (".metadata", "gone"),
    ],
)
def test_what_the_master_lost_of_a_whole_one_is_sent_again(pair: Pair, name: str, damage: str) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    pair.until_named()
    there = pair.there / final_of(SAVE) / name
    content = there.read_bytes()
    there.unlink() if damage == "gone" else there.write_bytes(b"")
    look_at_all(pair.a)
    pair.until(lambda: there.exists() and there.read_bytes() == content, "sent again", pair.a)
    pair.until(lambda: pair.a.rows() == of_whole(SAVE, (0, 1)), "clean rows", pair.a)
    check_whole(pair.there / final_of(SAVE))
    assert not list(pair.there.rglob(".rla-tmp-*"))


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "not whole yet"])
def test_into_a_later_save_of_others_nothing_is_sent(pair: Pair, whole: bool) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    pair.until_named()
    shutil.rmtree(pair.there / final_of(SAVE))
    later = Machine(pair.folder / "c", range(1), pair.a.target)  # one machine took the run over
    alone = identity(attempt=1, world=1)
    later.save(alone, order=2)
    shutil.copytree(later.folder / final_of(alone), pair.there / final_of(alone))
    if not whole:
        (pair.there / final_of(alone) / ".rla/whole.json").unlink()
    files = {path: path.stat().st_ino for path in pair.there.rglob("*")}
    look_at_all(pair.a)
    until = time.monotonic() + 1.0
    pair.until(lambda: time.monotonic() > until and pair.a.is_idle, "nothing to send", pair.a)
    assert {path: path.stat().st_ino for path in pair.there.rglob("*")} == files


def test_what_is_damaged_here_is_not_put_into_a_whole_one(pair: Pair) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    pair.until_named()
    here, there = (root / final_of(SAVE) / "__1_0.distcp" for root in (pair.a.machine.folder, pair.there))
    times = here.stat()
    here.write_bytes(b"x" * times.st_size)
    os.utime(here, ns=(times.st_atime_ns, times.st_mtime_ns))
    there.unlink()
    look_at_all(pair.a)
    words = "differs from what whole.json says of it"
    pair.until(lambda: words in as_text(replication_status(pair.a.node.state)), "status", pair.a)
    assert not there.exists()


def test_a_save_that_was_given_up_here_goes_there(pair: Pair) -> None:
    pair.a.machine.save(SAVE)
    making = pair.there / PARTS_FOLDER / name_of(SAVE)
    pair.until(lambda: (making / ".rla/shard-1.json").exists() and pair.a.is_idle, "a's part", pair.a)
    raise_fence(pair.a.machine.folder, RUN, 2)
    assert not parts_path(pair.a.machine.folder, SAVE).exists()
    pair.until(lambda: not making.exists() and not pair.a.rows(), "nothing left", pair.a)


@pytest.mark.slow
def test_what_a_killed_agent_may_have_sent_of_such_a_save_goes_there_too(pair: Pair) -> None:
    """Whether its last file has arrived is not in its ledger."""
    pair.a.close()
    reached = 0

    def send() -> None:
        pair.a.open()
        pair.until(lambda: "1_0.distcp" in str(pair.a.rows()) and pair.a.is_idle, "a's part", pair.a)

    for calls in range(0, 400, 9):
        save = identity(calls + 1, epoch=calls + 1, world=4)
        pair.a.machine.save(save)
        killed = killed_at(calls, send)
        making = pair.there / PARTS_FOLDER / name_of(save)
        reached += making.exists()
        raise_fence(pair.a.machine.folder, RUN, calls + 2)
        pair.a.open()
        pair.until(lambda: not making.exists() and not pair.a.rows(), "nothing left", pair.a)  # noqa: B023
        pair.a.close()
        if not killed:
            break
    assert reached > 2


def test_a_part_that_nobody_completes_costs_a_look_an_hour(pair: Pair) -> None:
    pair.a.machine.save(SAVE)
    making = pair.there / PARTS_FOLDER / name_of(SAVE)
    pair.until(lambda: (making / ".rla/shard-1.json").exists() and pair.a.is_idle, "a's part", pair.a)
    assert pair.a.worker is not None
    ledger, root = pair.a.worker._ledger, os.fsencode(pair.a.node.root)
    for age, every in ((3600, 60), (100_000, 3600)):
        since = time.time() - age
        os.utime(parts_path(pair.a.machine.folder, SAVE), (since, since))
        parts = WaitingParts(ledger, 1, root, pair.a.target, lambda _: None)
        looked = []
        for now in range(0, 3 * every + 1, 20):
            looks = parts.take(now)
            parts.looked(looks, ())
            looked += [now] * len(looks)
        assert looked == [0, every, 2 * every, 3 * every]


@pytest.mark.parametrize(
    "left_out",
    [{"replicate": ["log"]}, {"replicate_ignore": ["*.distcp"]}, {"replicate_max_file_bytes": 1000}],
    ids=["kinds", "pattern", "size"],
)
def test_status_tells_of_parts_that_are_never_sent(tmp_path: Path, left_out: dict[str, object]) -> None:
    pair = Pair(tmp_path, **left_out)
    try:
        for step in (1, 2):
            pair.a.machine.save(identity(step, world=4))
        words = "is not sent"
        pair.until(lambda: words in as_text(replication_status(pair.a.node.state)), "status", pair.a)
        text = as_text(replication_status(pair.a.node.state))
        assert text.count(words) == 1
        assert "agent.replicate" in text
        shutil.rmtree(pair.a.machine.folder / PARTS_FOLDER)
        pair.until(lambda: words not in as_text(replication_status(pair.a.node.state)), "status", pair.a)
    finally:
        pair.close()


def test_what_cannot_be_looked_at_is_not_given_up(pair: Pair) -> None:
    """An error of the disk, or a data root that is away, says nothing of what lies there."""
    pair.a.machine.save(SAVE)
    making = pair.there / PARTS_FOLDER / name_of(SAVE)
    pair.until(lambda: (making / ".rla/shard-1.json").exists() and pair.a.is_idle, "a's part", pair.a)
    before, parts = pair.a.rows(), pair.a.machine.folder / PARTS_FOLDER
    parts.rename(parts.with_name("aside"))
    parts.symlink_to(parts)  # too many links: an error other than that nothing is there
    assert pair.a.rows_after_a_look() == before
    parts.unlink()
    parts.with_name("aside").rename(parts)
    pair.a.node.root.rename(pair.folder / "away")
    assert pair.a.rows_after_a_look() == before
    (pair.folder / "away").rename(pair.a.node.root)
    parts.rename(parts.with_name("aside"))
    assert pair.a.rows_after_a_look() != before
    assert CLEAN not in pair.a.rows().values()


def test_a_later_save_of_the_time_step_takes_the_place_of_the_earlier(pair: Pair) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE, order=3)
    pair.until_named()
    later = identity(epoch=2, world=4)
    for one in (pair.a, pair.b):
        one.machine.save(later, order=9)
    pair.until_named(later)
    assert check_whole(pair.there / final_of(SAVE)) == 9
    for one in (pair.a, pair.b):
        assert one.rows() == of_whole(later, one.machine.ranks)


def test_what_is_fetched_back_is_not_sent_and_another_machine_gets_all(pair: Pair) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    pair.until_named()
    final = pair.a.machine.folder / final_of(SAVE)
    sent = pair.a.sent
    assert fetch_sharded_back(pair.a.node.state, final, None) > 0
    check_whole(final)
    pair.until(lambda: set(pair.a.rows().values()) == {CLEAN}, "all being known", pair.a)
    assert pair.a.sent == sent
    new = Agent(pair.folder / "c", pair.remote, (4,))
    new.close()
    here = new.machine.folder / final_of(SAVE)
    assert fetch_sharded_back(new.node.state, here, None, order=1) > 0
    check_whole(here)
    with pytest.raises(FetchError, match="of another save"):
        fetch_sharded_back(new.node.state, here, None, order=2)
    check_whole(here)
    with pytest.raises(FetchError, match="not whole on the master"):
        fetch_sharded_back(new.node.state, here.with_name("checkpoint_7.dcp"), None)
    assert not here.with_name("checkpoint_7.dcp").exists()


def test_notes_that_went_in_a_power_cut_are_made_anew(pair: Pair) -> None:
    for one in (pair.a, pair.b):
        one.machine.save(SAVE)
    pair.until_named()
    final = pair.a.machine.folder / final_of(SAVE)
    shutil.rmtree(final / ".rla-pruned")
    assert fetch_sharded_back(pair.a.node.state, final, None) > 0
    check_whole(final)


@pytest.mark.slow
@pytest.mark.parametrize("retention", ["keep", "mirror"])
def test_retention_on_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: str) -> None:
    """Of a mirror all goes, `whole.json` first; else all stays."""
    monkeypatch.setattr(sharded_master, "STAND_BY_S", 0.0)
    monkeypatch.setattr(sharded_parts, "LOOK_S", 0.05)
    pair = Pair(tmp_path, replicate_retention=retention)
    later = identity(2, world=4)
    try:
        for order, save in ((3, SAVE), (9, later)):
            for one in (pair.a, pair.b):
                one.machine.save(save, order=order)
            pair.until_named(save)
        for one in (pair.a, pair.b):
            folder = one.machine.folder
            assert remove_superseded_sharded(folder, "checkpoint", RUN, Retention(1)) == [final_of(SAVE)]
        if retention == "mirror":
            pair.until(lambda: not (pair.there / final_of(SAVE)).exists(), "the older one gone")
        else:
            pair.until(lambda: CLEAN not in {
                state for one in (pair.a, pair.b) for path, state in one.rows().items()
                if path.startswith(final_of(SAVE))
            }, "known to be gone")  # fmt: skip
            check_whole(pair.there / final_of(SAVE))
        check_whole(pair.there / final_of(later))
    finally:
        pair.close()
