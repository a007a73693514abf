"""Shared memory: sizes, short memory, who may see it, prefault, sweep by others."""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from rla_agent.jobs.shm_cleanup import sweep_arenas
from rla_client.contract.job.arena_layout import (
    ARENA_DATA_OFFSET,
    ARENA_FOLDER,
    ARENA_HEADER,
    ARENA_MAGIC,
    MAX_SLOTS,
    PAGE,
    SLOT_BUSY,
    SLOT_FREE,
    SLOT_HEADER,
    ArenaName,
    slot_header_offset,
    spool_key,
    stream_key,
)
from rla_client.stream import arena as arena_module
from rla_client.stream.arena import Arena, ArenaPool, create_arena
from rla_client.stream.free_memory import memory_room


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stream's folder; arenas of two slots, however small these are."""
    monkeypatch.setattr(arena_module, "SMALL_ARENA_BYTES", 0)
    folder = tmp_path / "spool" / "stream-1"
    folder.mkdir(parents=True)
    yield folder
    left = ours(folder)
    for name in left:
        os.unlink(os.path.join(ARENA_FOLDER, name))
    assert left == []


def ours(stream: Path) -> list[str]:
    key = spool_key(stream.parent)
    return [name for name in os.listdir(ARENA_FOLDER) if f"-{key}-" in name]


def test_small_slots_are_more(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small checkpoints may be saved faster than the agent's fsyncs end."""
    monkeypatch.setattr(arena_module, "SMALL_ARENA_BYTES", 40_000)
    for slot_bytes, slots in ((PAGE, MAX_SLOTS), (3 * PAGE, 3), (1 << 20, 2)):
        arena = create_arena(stream, slot_bytes)
        assert arena is not None
        assert arena.slots == slots
        assert [arena.free_slot() for _ in range(2)] == [0, 0]
        for slot in range(slots):
            arena.mark(slot, SLOT_BUSY, slot + 1)
        assert arena.free_slot() is None
        arena.close(unlink=True)


def test_the_file_is_private_and_laid_out_as_documented(stream: Path) -> None:
    arena = create_arena(stream, 10_000)
    assert arena is not None
    path = Path(ARENA_FOLDER, arena.name)
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert arena.slot_bytes == 3 * PAGE
    assert found.st_size == ARENA_DATA_OFFSET + arena.slots * arena.slot_bytes == arena.total
    assert found.st_blocks * 512 >= found.st_size  # allocated, not sparse: no SIGBUS later
    raw = path.read_bytes()
    magic, version, slots, slot_bytes, length = ARENA_HEADER.unpack_from(raw)
    assert (magic, version, slots, slot_bytes) == (ARENA_MAGIC, 1, 2, 3 * PAGE)
    assert raw[64 : 64 + length].decode() == str(stream)
    name = ArenaName.parse(arena.name)
    assert name is not None
    assert (name.uid, name.spool_key) == (os.geteuid(), spool_key(stream.parent))
    assert (name.stream_key, name.text) == (stream_key("stream-1"), arena.name)
    arena.close(unlink=True)
    arena.close(unlink=True)  # twice is once
    assert not path.exists()


def test_slots_are_seen_by_file_and_by_map_alike(stream: Path) -> None:
    arena = create_arena(stream, PAGE)
    assert arena is not None
    arena.mark(0, SLOT_BUSY, 41)
    arena.mark(1, SLOT_BUSY, 42)
    assert arena.free_slot() is None
    assert not arena.idle
    ctypes.memmove(arena.slot_address(1), b"second slot", 11)
    with open(os.path.join(ARENA_FOLDER, arena.name), "r+b", buffering=0) as file:
        file.seek(slot_header_offset(1))
        assert SLOT_HEADER.unpack(file.read(16)) == (SLOT_BUSY, 42)
        file.seek(ARENA_DATA_OFFSET + arena.slot_bytes)
        assert file.read(11) == b"second slot"
        file.seek(slot_header_offset(0))
        file.write(SLOT_HEADER.pack(SLOT_FREE, 41))
    assert arena.free_slot() == 0
    arena.close(unlink=True)


def test_memory_bounds_the_number_of_slots(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = 1 << 20, 2 << 20
    monkeypatch.setattr(arena_module, "memory_room", lambda: 4 * (two + ARENA_DATA_OFFSET))
    arena = create_arena(stream, one)
    assert arena is not None
    assert arena.slots == 2
    single = create_arena(stream, one, already=one)
    assert single is not None
    assert single.slots == 1
    assert create_arena(stream, one, already=two) is None
    for made in (arena, single):
        made.close(unlink=True)


def test_a_quarter_of_what_is_free_is_the_bound(stream: Path) -> None:
    assert memory_room() > 0
    assert create_arena(stream, memory_room() // 2) is None  # others take and give memory meanwhile
    assert ours(stream) == []


@pytest.mark.root
def test_a_short_shm_refuses_and_never_faults(tmp_path: Path) -> None:
    """In a mount namespace with 4 MiB of /dev/shm, of which 1 MiB is free: no SIGBUS, no file left."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    code = (
        "import os, sys; from pathlib import Path; from rla_client.stream import arena as a\n"
        "open('/dev/shm/ballast', 'wb').write(bytes(3 << 20))\n"
        "a.memory_room = lambda: 1 << 40\n"  # let the allocation itself find out
        f"made = a.create_arena(Path({str(tmp_path)!r}, 'spool', 's'), 1 << 20)\n"
        "assert made is None\n"
        "assert os.listdir('/dev/shm') == ['ballast']\n"
        "assert a.create_arena(Path('/x/y'), 4096) is not None\n"
    )
    command = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_pool_grows_in_the_background_and_retires_what_is_read(stream: Path) -> None:
    pool = ArenaPool(stream)
    pool.prepare(PAGE)
    assert pool.wait_prepared(10)
    first = pool.claim(PAGE, 1)
    assert first is not None
    assert pool.claim(1 << 20, 2) is None
    pool.prepare(1 << 20)
    assert pool.wait_prepared(10)
    assert pool.claim(1 << 20, 3) is not None
    assert len(ours(stream)) == 2
    first[0].mark(first[1], SLOT_FREE, 1)
    assert pool.claim(1 << 20, 4) is not None
    assert len(ours(stream)) == 1
    assert pool.claim(1 << 20, 5) is None
    assert pool.current is not None
    for slot in range(2):
        pool.current.mark(slot, SLOT_FREE, 0)
    pool.close()


def test_one_slot_made_before_sizes_are_known_gives_way_to_two(stream: Path) -> None:
    pool = ArenaPool(stream)
    room = memory_room()
    pool.prepare_one([room, 4 * PAGE])
    assert pool.wait_prepared(10)
    first = pool.current
    assert first is not None
    assert first.slot_bytes == 4 * PAGE, "the first size that there was room for"
    pool.prepare_one([8 * PAGE])
    assert not pool.preparing, "there is one"
    pool.close()


def test_the_first_slot_is_waited_for_by_all_that_may_fit(stream: Path) -> None:
    pool = ArenaPool(stream)
    pool.prepare_one([32 << 20, PAGE])
    pool.await_larger(16 << 20, timeout=30)
    claimed = pool.claim(16 << 20, 1)
    assert claimed is not None
    pool.give_back(1)
    pool.close()


def test_memory_for_one_slot_of_two_is_not_asked_for_again_and_again(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 100 * PAGE
    monkeypatch.setattr(arena_module, "SMALL_ARENA_BYTES", 0)
    monkeypatch.setattr(arena_module, "GROWTH", 1)
    monkeypatch.setattr(arena_module, "memory_room", lambda: 4 * (size + 2 * PAGE))
    pool = ArenaPool(stream)
    pool.prepare(size)
    assert pool.wait_prepared(10)
    first = pool.current
    assert first is not None
    assert (first.slots, first.short) == (1, True)
    pool.prepare(size)
    assert not pool.preparing
    assert pool.current is first
    pool.close()


def test_only_an_arena_that_is_large_enough_is_waited_for(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    create = arena_module.create_arena

    def late(*arguments: Any, **keywords: Any) -> Arena | None:
        may_end.wait(60)
        return create(*arguments, **keywords)

    monkeypatch.setattr(arena_module, "create_arena", late)
    pool = ArenaPool(stream)
    pool.prepare(PAGE)
    pool.await_larger(8 * PAGE, timeout=1000)
    assert pool.preparing, "it would have been waited for until the end"
    threading.Timer(0.05, may_end.set).start()
    pool.await_larger(PAGE, timeout=1000)
    assert pool.current is not None
    pool.close()


def test_an_older_kernel_touches_the_pages_one_by_one(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "MADV_POPULATE_WRITE", 9999)
    made = create_arena(stream, 3 << 20)
    assert made is not None
    made.mark(0, SLOT_BUSY, 7)
    made.prefault(threading.Event())
    assert made.header(0) == (SLOT_BUSY, 7)
    taken = os.stat(f"/dev/shm/{made.name}").st_blocks * 512
    assert taken >= 6 << 20
    made.close(unlink=True)


def test_an_exception_at_any_line_of_a_pool_never_touches_unmapped_memory(stream: Path) -> None:
    """A signal handler raises at each line in turn: the process lives, and slots are handed out again."""
    code = f"""
import sys
import threading
from pathlib import Path
from typing import Any
import rla_client.stream.arena as a

stream = Path({str(stream)!r})
line = 0

def tracer(frame, event, _):
    global line
    if frame.f_code.co_filename != a.__file__:
        return None
    if event == "line":
        line -= 1
        if line == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
    return tracer

def grown_pool():
    pool = a.ArenaPool(stream)
    pool.prepare(a.PAGE)
    assert pool.wait_prepared(20)
    first, slot = pool.claim(a.PAGE, 1)
    pool.prepare(8 * a.PAGE)
    pool._thread.join()
    first.mark(slot, a.SLOT_FREE, 1)
    return pool

hit = 0
for work in (lambda pool: pool.claim(8 * a.PAGE, 2), lambda pool: pool.close()):
    k = 0
    while True:
        k += 1
        pool = grown_pool()
        line = k
        try:
            sys.settrace(tracer)
            work(pool)
            sys.settrace(None)
            pool.give_back(2)
            pool.close()
            break
        except KeyboardInterrupt:
            hit += 1
        finally:
            sys.settrace(None)
        pool.give_back(2)
        for number in (3, 4, 5):
            claimed = pool.claim(8 * a.PAGE, number)
            if number < 5 and not pool._stop.is_set():
                assert claimed is not None, (k, number)
        for number in (3, 4, 5):
            pool.give_back(number)
        pool.close()
print(hit)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout) > 30


def test_the_sweep_spares_the_living_and_the_needed(stream: Path, tmp_path: Path) -> None:
    arena = create_arena(stream, PAGE)
    assert arena is not None
    spool = stream.parent

    def taken(by: Path, live: list[str]) -> bool:
        return arena.name in sweep_arenas(by, lambda _: live)

    assert not taken(spool, [])  # its process lives
    arena.close(unlink=False)
    assert not taken(spool, ["stream-1"])  # jobs may still read it
    assert not taken(tmp_path / "other", [])  # another agent's, whose folder is there
    wait_until(lambda: taken(spool, ["stream-2"]))  # an agent of another test may look at it right now
    assert ours(stream) == []


def test_a_stream_that_begins_and_dies_during_a_sweep_keeps_its_arena(stream: Path) -> None:
    """As when the agent was suspended in the middle of one."""
    made: list[str] = []

    def streams(_spool: Path) -> list[str]:
        arena = create_arena(stream, PAGE)
        assert arena is not None
        made.append(arena.name)
        arena.close(unlink=False)
        return []  # it was looked for before it began

    try:
        swept = sweep_arenas(stream.parent, streams)
        assert made[0] not in swept
        assert ours(stream) == made
    finally:
        wait_until(lambda: sweep_arenas(stream.parent, lambda _: []) is not None and ours(stream) == [])


def test_the_sweep_takes_what_an_agent_that_is_no_more_left(stream: Path, tmp_path: Path) -> None:
    gone = stream.parent / "gone"
    arena = create_arena(gone, PAGE)
    assert arena is not None
    sweep_arenas(tmp_path / "other", lambda _: [])
    assert ours(gone) == [arena.name]
    arena.close(unlink=False)
    wait_until(lambda: sweep_arenas(tmp_path / "other", lambda _: []) is not None and ours(gone) == [])


def test_the_sweep_leaves_other_files_alone(tmp_path: Path) -> None:
    path = Path(ARENA_FOLDER, f"rla-arena-{os.geteuid()}-{secrets.token_hex(4)}")
    path.write_bytes(b"")
    try:
        sweep_arenas(tmp_path, lambda _: [])
        assert path.exists()
    finally:
        path.unlink()
