"""Saves of several machines become whole on the master, whoever publishes and whenever it is killed."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.killed_child import killed_at
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part
from support.spread_saves import FOLDER, SENT_AT, Machine, final_of, name_of

from rla_agent.replicate.backend import remote_stat
from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat
from rla_agent.replicate.worker.sharded_master import PartFound
from rla_agent.replicate.worker.sharded_master_step import MasterStep, OnMaster, next_step
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.folder import finals_of, look, parts_of, read_fence
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.publish import publish
from rla_client.contract.sharded_checkpoint.records import Fence, SaveIdentity
from rla_client.contract.sharded_checkpoint.step import NO_CHECKPOINT, SaveInTheMaking, whole_of


class Site:
    """Two machines with two ranks each, and a master."""

    def __init__(self, folder: Path) -> None:
        self.master = folder / "master"
        self.master.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.there = self.master / FOLDER
        self.a = Machine(folder / "a", (0, 1))
        self.b = Machine(folder / "b", (2, 3))
        self.session = FolderSession(str(self.master))

    def saved(self, save: SaveIdentity, order: int = 1, keep: Retention | None = None) -> None:
        """Both have written and sent."""
        for machine in (self.a, self.b):
            machine.save(save, order, keep)
            machine.send(self.session, save)

    def settle(self, save: SaveIdentity) -> list[PartFound]:
        return [machine.look(self.session, save) for machine in (self.b, self.a, self.b)]

    def left(self) -> list[str]:
        """What lies in the making on the master."""
        above = self.there / PARTS_FOLDER
        return sorted(path.name for path in above.iterdir()) if above.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


SAVE = identity(world=4)


def on_master(site: Site, **told: object) -> OnMaster:
    here = look(site.a.folder, name_of(SAVE))
    there = look(site.b.folder, name_of(SAVE))
    found = SaveInTheMaking(SAVE.token, {**here.receipts, **there.receipts}, {**here.sizes, **there.sizes})
    own = {name: told.pop(name) for name in ("receipts", "whole", "holder", "fence") if name in told}
    return OnMaster(replace(found, **own), **told)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_what_becomes_whole_after_the_training_has_ended_obeys_its_rules(site: Site, late: int) -> None:
    """The last two stay, whichever comes last; a part that would not stay goes."""
    saves = [identity(step, world=4) for step in range(1, 5)]
    for order, save in enumerate(saves, 1):
        site.saved(save, order, Retention(max_to_keep=9 if order == 1 else 2))
    for order, save in enumerate(saves, 1):
        if order != late:
            site.settle(save)
    site.settle(saves[late - 1])
    for machine in (site.a, site.b):
        assert finals_of(machine.folder) == ["checkpoint_3.dcp", "checkpoint_4.dcp"]
        assert parts_of(machine.folder) == []


def test_rules_that_are_not_told_remove_nothing(site: Site) -> None:
    for step in range(1, 4):
        site.saved(identity(step, world=4), step, Retention(max_to_keep=1) if step == 1 else None)
        site.settle(identity(step, world=4))
    assert len(finals_of(site.a.folder)) == 3


def test_what_follows_from_what_is_there(site: Site) -> None:
    site.saved(SAVE, order=5)
    full = on_master(site)
    whole = whole_of(full.found.receipts)
    some = dict(list(full.found.receipts.items())[1:])
    cases = [
        (on_master(site), MasterStep.TAKE_NAME),
        (on_master(site, receipts={}), MasterStep.WAIT),
        (on_master(site, receipts=some), MasterStep.WAIT),
        (on_master(site, receipts=some, placed=True), MasterStep.GIVE_BACK),
        (on_master(site, placed=True), MasterStep.PUT_METADATA),
        (on_master(site, whole=whole), MasterStep.DONE),
        (on_master(site, holder=NO_CHECKPOINT), MasterStep.BLOCKED),
        (on_master(site, holder=4), MasterStep.LEAVE_OLDER),
        (on_master(site, holder=4, puts_away=True), MasterStep.PUT_AWAY_OLDER),
        (on_master(site, holder=6, receipts=some), MasterStep.REMOVE),
        (on_master(site, fence=Fence(RUN, 2)), MasterStep.REMOVE),
        (on_master(site, fence=Fence(RUN, 1)), MasterStep.TAKE_NAME),
        (on_master(site, whole=whole, fence=Fence(RUN, 2)), MasterStep.DONE),
    ]
    assert [next_step(there) for there, _ in cases] == [step for _, step in cases]


def test_the_last_part_makes_it_whole(site: Site) -> None:
    site.a.save(SAVE)
    site.a.send(site.session, SAVE)
    found = site.a.look(site.session, SAVE)
    assert found.waits == "checkpoint_1: 2 of 4 shards are on the master; missing: rank 2, 3"
    assert not found.lost
    site.b.save(SAVE)
    site.b.send(site.session, SAVE)
    assert site.b.look(site.session, SAVE).waits == ""
    check_whole(site.there / final_of(SAVE))
    assert site.b.has_named(SAVE)
    assert not site.a.has_named(SAVE)
    assert site.a.look(site.session, SAVE).waits == ""
    assert site.a.has_named(SAVE)
    assert site.left() == []
    for machine in (site.a, site.b):
        note = note_of_whole(machine.folder / final_of(SAVE))
        assert note is not None
        there = site.there / final_of(SAVE) / ".rla/whole.json"
        assert (note.size, note.mtime_ns) == (there.stat().st_size, there.stat().st_mtime_ns)
        assert note.order == 1


@pytest.mark.parametrize("seconds", [0, 50])
def test_the_machine_of_rank_0_goes_first(site: Site, seconds: int) -> None:
    """The last receipt is so old; rank 2 of four stands by for 45 s."""
    for machine in (site.a, site.b):
        machine.save(SAVE)
        machine.send(site.session, SAVE, int(time.time()) - seconds)
    asked = _Counting(site)
    waits = site.b.look(asked, SAVE, stands_by=True).waits
    if seconds:
        assert waits == ""
    else:
        assert waits == "checkpoint_1: this machine's part is on the master, and waits for the others"
        assert asked.probed == 0, "a thousand machines would read a thousand receipts each"
        assert site.a.look(site.session, SAVE, stands_by=True).waits == ""
        assert site.b.look(site.session, SAVE, stands_by=True).waits == ""
    check_whole(site.there / final_of(SAVE))
    assert site.b.has_named(SAVE)


def test_a_young_save_costs_other_machines_one_request(site: Site) -> None:
    order = time.time_ns()
    site.b.save(SAVE, order)
    site.b.send(site.session, SAVE)
    asked = _Counting(site)
    assert "waits for the others" in site.b.look(asked, SAVE, stands_by=True).waits
    assert (asked.stats, asked.lists, asked.probed) == (1, 0, 0)


class _Counting(FolderSession):
    """Counts what is asked for."""

    def __init__(self, site: Site) -> None:
        super().__init__(str(site.master))
        self.stats = self.lists = self.probed = 0

    def stat(self, path: bytes) -> RemoteStat | None:
        self.stats += 1
        return super().stat(path)

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        self.lists += 1
        return super().listing(path)

    def probe(self, wanted: Sequence[Probe]) -> list[remote_stat.StatWithParts | TargetError]:
        self.probed += len(wanted)
        return super().probe(wanted)


def test_all_publishers_give_it_the_same_time(site: Site) -> None:
    site.saved(SAVE)
    making = site.there / PARTS_FOLDER / name_of(SAVE)
    (making / ".rla/.rla-tmp-whole-00000000").write_text("another one is at it")
    assert site.a.look(site.session, SAVE).waits == ""
    assert (site.there / final_of(SAVE) / ".rla/whole.json").stat().st_mtime == 1 + SENT_AT


def test_a_part_whose_sizes_differ_is_missing(site: Site) -> None:
    site.saved(SAVE)
    shard = site.there / PARTS_FOLDER / name_of(SAVE) / "__3_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    found = site.a.look(site.session, SAVE)
    assert found.waits.endswith("3 of 4 shards are on the master; missing: rank 3")
    assert not found.lost
    assert site.b.look(site.session, SAVE).lost


def killed_everywhere(tmp_path: Path, prepare: Callable[[Site], SaveIdentity], stride: int) -> None:
    """Kill rank 0's publisher at each of its operations, or some of them; then all go on."""
    calls, first = 0, Site(tmp_path / "first")
    save = prepare(first)
    while True:
        shutil.copytree(first.folder, tmp_path / str(calls))
        site = Site(tmp_path / str(calls))
        final = site.there / final_of(save)
        before = check_whole(final) if final.exists() else None
        killed = killed_at(calls, partial(site.a.look, site.session, save))
        if (final / ".rla/whole.json").exists():
            assert check_whole(final) in {before, 9}
        assert [found.waits for found in site.settle(save)][1:] == ["", ""]
        assert check_whole(final) == 9
        assert site.a.has_named(save)
        assert site.b.has_named(save)
        assert site.left() == []
        assert sorted(path.name for path in (final / ".rla").iterdir()) == [
            *(f"shard-{rank}.json" for rank in range(4)),
            "whole.json",
        ]
        shutil.rmtree(site.folder)
        if not killed:
            break
        calls += stride
    assert calls > 30


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.further)])
def test_a_publisher_is_killed_at_each_operation(tmp_path: Path, stride: int) -> None:
    def prepare(site: Site) -> SaveIdentity:
        site.saved(SAVE, order=9)
        return SAVE

    killed_everywhere(tmp_path, prepare, stride)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.further)])
def test_a_publisher_that_replaces_a_checkpoint_is_killed_at_each_operation(
    tmp_path: Path, stride: int
) -> None:
    def prepare(site: Site) -> SaveIdentity:
        site.saved(SAVE, order=3)
        site.settle(SAVE)
        later = identity(epoch=2, world=4)
        site.saved(later, order=9)
        return later

    killed_everywhere(tmp_path, prepare, stride)


@pytest.mark.parametrize("older", [False, True])
def test_several_publishers_at_once(tmp_path: Path, older: bool) -> None:
    for number in range(5):
        site = Site(tmp_path / str(number))
        save = SAVE
        if older:
            site.saved(SAVE, order=3)
            site.settle(SAVE)
            save = identity(epoch=2, world=4)
        site.saved(save, order=9)
        start = threading.Barrier(3)

        def run(
            one: tuple[Machine, bool], start: threading.Barrier = start, save: SaveIdentity = save
        ) -> PartFound:
            session = FolderSession(str(one[0].root.parent / "master"))
            start.wait()
            return one[0].look(session, save, replaces=one[1])

        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(run, [(site.a, True), (site.b, True), (site.a, False)]))
        assert len(found) == 3
        assert [one.waits for one in site.settle(save)][1:] == ["", ""]
        assert check_whole(site.there / final_of(save)) == 9
        assert site.a.has_named(save)
        assert site.b.has_named(save)
        assert site.left() == []


def test_an_older_checkpoint_makes_way_by_rank_0s_machine_alone(site: Site) -> None:
    site.saved(SAVE, order=3)
    site.settle(SAVE)
    later = identity(epoch=2, world=4)
    site.saved(later, order=9)
    found = site.b.look(site.session, later)
    assert "an older checkpoint has its name" in found.waits
    assert check_whole(site.there / final_of(SAVE)) == 3
    assert site.a.look(site.session, later, replaces=False).waits == found.waits
    assert site.a.look(site.session, later).waits == ""
    assert check_whole(site.there / final_of(SAVE)) == 9
    assert site.left() == []
    assert site.b.look(site.session, later).waits == ""
    assert site.a.has_named(later)
    assert site.b.has_named(later)


def test_a_late_sender_of_an_old_opening_changes_nothing(site: Site) -> None:
    """Its part goes, there and here: a later save of the time-step is whole."""
    site.b.save(SAVE, order=3)
    later = identity(epoch=2, world=4)
    site.a.save(later, order=9)
    site.a.send(site.session, later)
    other = Machine(site.b.root.parent / "c", (2, 3))
    other.save(later, order=9)
    other.send(site.session, later)
    assert site.a.look(site.session, later).waits == ""
    site.b.send(site.session, SAVE)
    assert site.left() == [name_of(SAVE)]
    assert site.b.look(site.session, SAVE).waits == ""
    assert check_whole(site.there / final_of(SAVE)) == 9
    assert site.left() == []
    assert not parts_path(site.b.folder, SAVE).exists()


def test_what_is_sent_again_after_the_publication_goes(site: Site) -> None:
    """Whoever did not hear that its receipt had arrived makes the folder in the making anew."""
    site.saved(SAVE)
    assert site.b.look(site.session, SAVE).waits == ""
    site.a.send(site.session, SAVE)
    assert site.left() == [name_of(SAVE)]
    assert site.a.look(site.session, SAVE).waits == ""
    assert site.left() == []
    check_whole(site.there / final_of(SAVE))


def test_the_fence_of_this_machine_keeps_out(site: Site) -> None:
    site.saved(SAVE)
    raise_fence(site.b.folder, RUN, 2)
    here = parts_path(site.b.folder, SAVE)
    (here.parent / "abandoned-1" / here.name).rename(here)
    assert site.b.look(site.session, SAVE).waits == ""
    assert site.left() == ["fence.json"]
    assert not (site.there / final_of(SAVE)).exists()
    assert not parts_path(site.b.folder, SAVE).exists()


def test_the_fence_on_the_master_keeps_out_everywhere(site: Site) -> None:
    later = identity(2, epoch=2, world=4)
    raise_fence(site.a.folder, RUN, 2)
    site.saved(later)
    assert site.a.look(site.session, later).waits == ""
    assert site.left() == ["fence.json"]
    lone = Machine(site.a.root.parent / "c", (0, 1, 2, 3))
    lone.ranks = (0, 1)
    lone.save(SAVE)
    lone.send(site.session, SAVE)
    site.b.save(SAVE)
    site.b.send(site.session, SAVE)
    assert site.b.look(site.session, SAVE).waits == ""
    assert not (site.there / final_of(SAVE)).exists()
    assert site.left() == ["fence.json"]
    assert read_fence(site.b.folder) == Fence(RUN, 2)
    assert lone.look(site.session, SAVE).waits == ""  # its part is there no more, and the fence says why
    assert read_fence(lone.folder) == Fence(RUN, 2)
    assert not parts_path(lone.folder, SAVE).exists()


def test_a_part_of_a_machine_that_is_not_in_the_new_job_goes(site: Site) -> None:
    """The others had nothing of that save on the master, and have completed none since."""
    site.b.save(SAVE)
    site.b.send(site.session, SAVE)
    assert site.b.look(site.session, SAVE).waits != ""
    later = identity(2, epoch=2, world=4)
    raise_fence(site.a.folder, RUN, 2)
    site.a.save(later)
    site.a.send(site.session, later)
    assert site.a.look(site.session, later).waits != ""
    assert site.b.look(site.session, SAVE).waits == ""
    assert not parts_path(site.b.folder, SAVE).exists()
    assert site.left() == [name_of(later), "fence.json"]


@pytest.mark.parametrize("far", [False, True])
def test_a_fence_of_somebody_else_on_the_master_stops_nothing(site: Site, far: bool) -> None:
    """Of another run, whose tree was copied there, or of an opening that nobody can have made yet."""
    epoch = 1_000_000_000 * (int(time.time()) + 200_000)
    there = site.there / PARTS_FOLDER / "fence.json"
    there.parent.mkdir(parents=True)
    there.write_bytes((Fence(RUN, epoch) if far else Fence("cd" * 16, 5)).encode())
    raise_fence(site.a.folder, RUN, 1)
    site.saved(SAVE)
    assert site.b.look(site.session, SAVE).waits == ""
    check_whole(site.there / final_of(SAVE))
    assert site.a.look(site.session, SAVE).waits == ""
    assert read_fence(site.a.folder) == Fence(RUN, 1)


def test_a_fence_of_another_run_stays_here(site: Site) -> None:
    """Which run the folder belongs to is for those who write here to say."""
    site.b.save(SAVE)
    site.b.send(site.session, SAVE)
    (site.there / PARTS_FOLDER / "fence.json").write_bytes(Fence(RUN, 2).encode())
    own = Fence("cd" * 16, 1)
    (site.b.folder / PARTS_FOLDER / "fence.json").write_bytes(own.encode())
    site.b.look(site.session, SAVE)
    assert read_fence(site.b.folder) == own
    assert not parts_path(site.b.folder, SAVE).exists()


def test_what_is_kept_out_loses_its_name_at_once(tmp_path: Path) -> None:
    """Another publisher that looked before the fence came writes into a folder that has all, or into none."""
    first, calls, killed = Site(tmp_path / "first"), 0, True
    first.saved(SAVE)
    (first.there / PARTS_FOLDER / name_of(SAVE)).rename(first.there / final_of(SAVE))
    files = sorted(path.name for path in (first.there / final_of(SAVE)).rglob("*"))
    raise_fence(first.b.folder, RUN, 2)
    here = parts_path(first.b.folder, SAVE)
    (here.parent / "abandoned-1" / here.name).rename(here)
    while killed:
        shutil.copytree(first.folder, tmp_path / str(calls))
        site = Site(tmp_path / str(calls))
        killed = killed_at(calls, partial(site.b.look, site.session, SAVE))
        final = site.there / final_of(SAVE)
        assert not final.exists() or sorted(path.name for path in final.rglob("*")) == files
        assert site.b.look(site.session, SAVE).waits == ""
        assert not final.exists()
        calls += 3
    assert site.left() == ["fence.json"]


def test_what_becomes_whole_while_it_is_taken_away_stays(site: Site) -> None:
    """By a publisher that did not know the fence."""
    site.saved(SAVE)
    final, calls = site.there / final_of(SAVE), 0
    with_both = whole_of(on_master(site).found.receipts).encode()
    (site.there / PARTS_FOLDER / name_of(SAVE)).rename(final)
    (final / ".rla/metadata").rename(final / ".metadata")
    raise_fence(site.b.folder, RUN, 2)
    here = parts_path(site.b.folder, SAVE)
    (here.parent / "abandoned-1" / here.name).rename(here)

    class Slow(FolderSession):
        def rename(self, old: bytes, new: bytes) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                (final / ".rla/whole.json").write_bytes(with_both)
            super().rename(old, new)

    assert "became whole" in site.b.look(Slow(str(site.master)), SAVE).waits
    assert check_whole(final) == 1
    assert site.b.look(site.session, SAVE).waits == ""
    assert site.b.has_named(SAVE)


def test_something_else_under_the_name_stays(site: Site) -> None:
    (site.there / final_of(SAVE)).mkdir(parents=True)
    (site.there / final_of(SAVE) / "mine").write_text("mine")
    site.saved(SAVE)
    assert site.a.look(site.session, SAVE).waits == "checkpoint_1: on the master something else has its name"
    assert (site.there / final_of(SAVE) / "mine").read_text() == "mine"


def test_a_publication_that_nobody_ended_makes_way(site: Site) -> None:
    """A folder under the final name with parts of an older save, and no `whole.json`."""
    site.saved(SAVE, order=3)
    (site.there / PARTS_FOLDER / name_of(SAVE)).rename(site.there / final_of(SAVE))
    later = identity(epoch=2, world=4)
    site.saved(later, order=9)
    assert "an older checkpoint has its name" in site.b.look(site.session, later).waits
    assert site.a.look(site.session, later).waits == ""
    assert check_whole(site.there / final_of(later)) == 9


def test_files_that_go_during_the_publication_are_noticed(site: Site) -> None:
    """Retention on another machine takes its part away between a look and the new name."""
    site.saved(SAVE)
    (site.there / PARTS_FOLDER / name_of(SAVE)).rename(site.there / final_of(SAVE))
    (site.there / final_of(SAVE) / "__2_0.distcp").unlink()
    assert site.a.look(site.session, SAVE).waits.endswith("missing: rank 2")
    assert not (site.there / final_of(SAVE)).exists()
    assert site.left() == [name_of(SAVE)]


def test_ranks_that_did_not_plan_alike_make_nothing_whole(site: Site) -> None:
    site.saved(SAVE)
    write_part(site.b.folder, replace(SAVE, layout="M"), 3, beside=site.b.ranks)
    (site.there / PARTS_FOLDER / name_of(SAVE) / ".rla/shard-3.json").unlink()
    (site.there / PARTS_FOLDER / name_of(SAVE) / "__3_0.distcp").unlink()
    receipt = parts_path(site.b.folder, SAVE) / ".rla/shard-3.json"
    (site.there / PARTS_FOLDER / name_of(SAVE) / ".rla/shard-3.json").write_bytes(receipt.read_bytes())
    shard = parts_path(site.b.folder, SAVE) / "__3_0.distcp"
    (site.there / PARTS_FOLDER / name_of(SAVE) / "__3_0.distcp").write_bytes(shard.read_bytes())
    assert site.a.look(site.session, SAVE).waits == "checkpoint_1: its ranks did not plan alike"


def test_a_part_that_went_here_is_not_waited_for(site: Site) -> None:
    assert site.a.look(site.session, SAVE).waits == ""
    assert publish(site.a.folder, name_of(SAVE)) is None
