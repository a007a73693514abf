"""One agent per spool, whatever is deleted, replaced or renamed under a live pair; each row exactly once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from support.oracle import Trainer, check_folder
from support.waiting import wait_until

from rla_agent.daemon import EXIT_FAILED, EXIT_NEWER
from rla_agent.service.lock_holder import read_holder
from rla_agent.store.agent_db import STEPS
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import LOCK_NAME

PACE = ("--worker", "--burst", "40", "--pause", "0.02", "--segment-bytes", "131072")


@pytest.fixture
def second(places: Places, tmp_path: Path) -> Iterator[BareAgent]:
    """The agent that takes over."""
    agent = BareAgent(places, tmp_path / "second-agent.log")
    yield agent
    agent.kill()


def replace(*paths: Path) -> None:
    """Put a copy in the place of each file."""
    for path in paths:
        shutil.copy(path, f"{path}.copy")
        os.replace(f"{path}.copy", path)


def unlink(paths: Iterable[Path]) -> None:
    """Remove files; a socket may be gone already."""
    for path in paths:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """As `rm -rf` does, beside those who write there: what goes meanwhile is gone, what comes goes too."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(is_gone, what=f"removal of {folder}")


def remove_streams(spool: Path) -> None:
    """Remove the folders of all streams."""
    for name in stream_names(spool):
        remove_tree(spool / name)


def in_streams(places: Places, pattern: str) -> list[Path]:
    """Files of all streams; of no folder that is still being made under another name."""
    return [path for name in stream_names(places.spool) for path in (places.spool / name).glob(pattern)]


def away_and_back(folder: Path, ended: Callable[[], object]) -> None:
    """Rename a folder until the agent has seen it."""
    moved = folder.with_name(f"{folder.name}-moved")
    folder.rename(moved)
    ended()
    moved.rename(folder)


DISTURBANCES: dict[str, Callable[[Places, Callable[[], object]], object]] = {
    "agent.lock deleted": lambda places, _: places.lock.unlink(),
    "agent.lock replaced": lambda places, _: replace(places.lock),
    "agent.db deleted": lambda places, _: places.database.unlink(),
    "agent.db and its WAL deleted": lambda places, _: unlink(places.state.glob("agent.db*")),
    "agent.db replaced": lambda places, _: replace(places.database),
    "spool renamed": lambda places, ended: away_and_back(places.spool, ended),
    "state renamed": lambda places, ended: away_and_back(places.state, ended),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "disturbance",
    [pytest.param(one, marks=() if one == "spool renamed" else pytest.mark.further) for one in DISTURBANCES],
)
def test_the_next_agent_takes_over(
    bare_agent: BareAgent, second: BareAgent, trainer: Callable[..., Trainer], disturbance: str
) -> None:
    """The first ends by itself, the next one is not held up by it, and no row is missing or double."""
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", *PACE)
    wait_until(lambda: one.told > 3000)
    first = bare_agent.process
    assert first is not None

    def ended() -> None:
        wait_until(lambda: first.poll() is not None, what="end of the agent")

    DISTURBANCES[disturbance](bare_agent.places, ended)
    if "agent.lock" not in disturbance:
        ended()  # until then its lock is held, and the next agent would say so and end
    second.spawn()
    ended()
    wait_until(second.serves, what=second.tail)
    target = one.told + 1000
    wait_until(lambda: one.told > target)
    one.stop()
    second.drain(wait_until)
    check_folder(one)
    assert "the agent ends" in bare_agent.tail()


def newest_segments(places: Places, names: list[str]) -> dict[str, int]:
    """Inode of each stream's newest segment, of those that have one."""
    paths = {name: sorted((places.spool / name).glob("*.seg"))[-1:] for name in names}
    return {name: path.stat().st_ino for name, found in paths.items() for path in found}


GONE: dict[str, Callable[[Places], object]] = {
    "state": lambda places: remove_tree(places.state),
    "spool": lambda places: remove_tree(places.spool),
    "streams": lambda places: remove_streams(places.spool),
    "segments": lambda places: unlink(in_streams(places, "*.seg")),
    "all but the lock": lambda places: unlink(
        path for path in in_streams(places, "*") if path.name != LOCK_NAME
    ),
    "a copy": lambda places: replace(*in_streams(places, "*.seg")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "gone", ["state", *(pytest.param(n, marks=pytest.mark.further) for n in GONE if n != "state")]
)
def test_a_living_writer_writes_anew_what_was_deleted_under_it(
    bare_agent: BareAgent, second: BareAgent, trainer: Callable[..., Trainer], gone: str
) -> None:
    """Its segment is still open: no row is lost by it, and none comes twice."""
    places = bare_agent.places
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", *PACE[:-2])
    wait_until(lambda: one.told > 3000)
    wait_until(lambda: len(in_streams(places, "*.base")) == 2, what="a base of each stream")
    target = one.told + 8000  # by then the writers know the bases
    wait_until(lambda: one.told > target)
    names = stream_names(places.spool)
    GONE[gone](places)
    before = newest_segments(places, names)
    wait_until(lambda: newest_segments(places, names).keys() == set(names))
    wait_until(lambda: not newest_segments(places, names).items() & before.items(), what="new segments")
    target = one.told + 3000
    wait_until(lambda: one.told > target)
    first = bare_agent.process
    assert first is not None
    if gone in {"state", "spool"}:
        wait_until(lambda: first.poll() is not None, what="end of the agent")
        second.spawn()
        wait_until(second.serves, what=second.tail)
    one.stop()
    (second if gone in {"state", "spool"} else bare_agent).drain(wait_until)
    check_folder(one)


@pytest.mark.slow
def test_a_state_folder_deleted_under_an_idle_agent(
    bare_agent: BareAgent, second: BareAgent, trainer: Callable[..., Trainer]
) -> None:
    """The next client makes it anew: the first agent must not serve it beside the second."""
    places = bare_agent.places
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    first = bare_agent.process
    assert first is not None
    bare_agent.signal(signal.SIGSTOP)  # it sees nothing of it until both are there
    remove_tree(places.state)
    places.create()
    second.spawn()
    wait_until(lambda: read_holder(places).get("pid") not in {None, first.pid})
    bare_agent.signal(signal.SIGCONT)
    one = trainer("run", *PACE)
    wait_until(lambda: one.told > 3000)
    wait_until(lambda: first.poll() is not None, what="end of the agent")
    one.stop()
    second.drain(wait_until)
    check_folder(one)


@pytest.mark.slow
@pytest.mark.parametrize("becomes", ["gone", "empty", "a copy", "a link"])
def test_a_stream_whose_lock_file_is_gone_goes_on(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], becomes: str
) -> None:
    """A cleaner of old files takes it; the writer lives, and its end is seen all the same."""
    places = bare_agent.places
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", *PACE)
    wait_until(lambda: one.told > 2000 and len(stream_names(places.spool)) == 2)
    for name in stream_names(places.spool):
        lock = places.spool / name / LOCK_NAME
        if becomes == "a copy":
            replace(lock)
            continue
        lock.unlink()
        if becomes == "empty":
            lock.touch()
        elif becomes == "a link":
            lock.symlink_to("/dev/null")
    one.process.send_signal(signal.SIGSTOP)  # else there is always more to read, and it never looks ended
    witness = trainer("witness", "--rows", "10")
    witness.ended()
    wait_until(lambda: len(stream_names(places.spool)) <= 2, what="the witness taken in to its end")
    assert len(stream_names(places.spool)) == 2, "taken for dead"
    one.process.send_signal(signal.SIGCONT)
    target = one.told + 4000
    wait_until(lambda: one.told > target)
    one.kill()
    bare_agent.drain(wait_until)
    check_folder(one)
    assert '"state": "killed"' in (one.folder / "run.json").read_text()


def set_version(places: Places, number: int) -> None:
    with closing(sqlite3.connect(places.database)) as db:
        db.execute(f"PRAGMA user_version = {number}")


@pytest.mark.slow
def test_an_upgrade_and_a_downgrade_under_a_living_writer(
    bare_agent: BareAgent, trainer: Callable[..., Trainer]
) -> None:
    """A database whose version is lost is taken over; one of a later release costs no row."""
    places = bare_agent.places
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", *PACE)
    wait_until(lambda: one.told > 2000)
    bare_agent.kill()
    set_version(places, 0)
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    with closing(sqlite3.connect(places.database)) as db:
        assert db.execute("PRAGMA user_version").fetchone() != (0,)
    target = one.told + 2000
    wait_until(lambda: one.told > target)
    bare_agent.kill()
    ours = len(STEPS)
    set_version(places, 99)
    bare_agent.spawn()
    assert bare_agent.process is not None
    assert bare_agent.process.wait(60) == EXIT_NEWER
    target = one.told + 2000
    wait_until(lambda: one.told > target)
    set_version(places, ours)
    bare_agent.spawn()
    one.stop()
    bare_agent.drain(wait_until)
    check_folder(one)


@pytest.mark.slow
def test_a_bind_mount_of_a_served_spool_is_refused(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    """Reached by another path, and without the agent.lock beside it: the folder is the same."""
    places = bare_agent.places
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    assert bare_agent.process is not None
    one = trainer("run", *PACE)
    wait_until(lambda: one.told > 500)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    script = 'mount --bind "$1" "$2" || exit 77; shift 2; exec "$@"'
    drain = [sys.executable, "-m", "rla_agent", "drain", "--spool", str(mounted)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(places.spool), str(mounted), *drain],
        capture_output=True, text=True, check=False,
        env={**os.environ, "RLA_STATE_DIR": str(tmp_path / "other")},
    )  # fmt: skip
    if done.returncode in {1, 77} and "ermitted" in done.stderr:
        pytest.skip("mounting needs root")
    assert (done.returncode, f"pid {bare_agent.process.pid}" in done.stderr) == (3, True), done
    one.stop()
    bare_agent.drain(wait_until)
    check_folder(one)


def remove_state(places: Places) -> None:
    """All of it, but for the word that clients start no agent: the test has its own."""
    fresh, gone = (places.state.with_name(f"{places.state.name}-{word}") for word in ("fresh", "gone"))
    fresh.mkdir(mode=0o700)
    (fresh / places.stopped_marker.name).touch()
    places.state.rename(gone)
    fresh.rename(places.state)
    remove_tree(gone)


REMOVALS: dict[str, Callable[[Places], object]] = {
    "locks of streams": lambda places: unlink(in_streams(places, LOCK_NAME)),
    "agent.lock": lambda places: places.lock.unlink(missing_ok=True),
    "sockets": lambda places: unlink((places.data_socket, places.control_socket)),
    "agent.db": lambda places: places.database.unlink(missing_ok=True),
    "WAL and shm": lambda places: unlink(places.state.glob("agent.db-*")),
    "spool": lambda places: remove_tree(places.spool),
    "state": remove_state,
    "nothing": lambda _places: None,
}


def texts_of(one: Trainer) -> int:
    """Lines of text that arrived, of both streams."""
    return sum(path.read_bytes().count(b"end\n") for path in one.folder.glob("log*.txt"))


def goes_on(agent: BareAgent, one: Trainer, least: int) -> bool:
    """Whether so many texts arrived; an agent that ended is started anew, as a client would."""
    assert agent.process is not None
    if agent.process.poll() is not None:
        assert agent.process.returncode in {EXIT_FAILED, -signal.SIGKILL}, agent.tail()
        agent.spawn()
    return texts_of(one) >= least


@pytest.mark.further
@pytest.mark.slow
def test_whatever_is_removed_in_whatever_order(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], chance: random.Random
) -> None:
    """Under an agent and a living writer, with restarts between: each row arrives, once."""
    places = bare_agent.places
    order: list[tuple[str, bool]] = []  # what is removed, and whether the agent is killed before
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", *PACE[:-2])
    wait_until(lambda: len(in_streams(places, "*.base")) == 2)
    target = one.told + 8000  # by then the writers know the bases
    wait_until(lambda: one.told > target)
    names = stream_names(places.spool)
    for _ in range(12):
        order.append((chance.choice(list(REMOVALS)), chance.random() < 0.3))
        if order[-1][1]:
            bare_agent.kill()
        REMOVALS[order[-1][0]](places)
        removed = not newest_segments(places, names)
        if removed:
            wait_until(lambda: newest_segments(places, names).keys() == set(names), what=f"anew: {order}")
        least = texts_of(one) + 20
        wait_until(partial(goes_on, bare_agent, one, least), what=lambda: f"{order}: {bare_agent.tail()}")
    one.stop()
    wait_until(
        lambda: goes_on(bare_agent, one, 0) and not stream_names(places.spool),
        what=lambda: f"the end after {order}: {bare_agent.tail()}",
    )
    check_folder(one)
