"""Malformed peers: whatever comes, the agent serves, writes nothing outside the run, and stays small."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

import psutil
import pytest
import zmq
from crash.conftest import Bench
from crash.mutations import frames
from support.lone import LoneStream, Side
from support.oracle import check_folder, event_records

from rla_agent.model.frame_decoder import parse
from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.spool.protocol import FrameKind, MessageKind, encode_frame, encode_message, pack
from rla_client.contract.spool.segments import new_stream_name, stream_names
from rla_client.stream.segment_writer import SegmentWriter

MOST_GROWTH = 64 << 20  # of the agent's RSS
OTHERS_RATIO = 2.0
SCHEDULER_S = 2e-4  # a p99 below this says more of the scheduler than of us
FRAMES_A_STREAM = 2000


def send_garbage(places: Places, chance: random.Random, connections: int, messages: int) -> None:
    """Random bytes into both sockets, and mutated messages through a real DEALER."""
    for path in (places.data_socket, places.control_socket):
        for _ in range(connections // 2):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(path))
                try:
                    raw.sendall(chance.randbytes(chance.randrange(400)))
                except OSError:
                    continue
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"ipc://{places.data_socket}")
        good = encode_message(MessageKind.HINT, {"s": "0000000000000001-1-0123abcd", "n": 1, "o": 0})
        for _ in range(messages):
            broken = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            dealer.send(bytes(broken[: chance.randrange(len(broken) + 1)]))
        for header in ({"s": 1}, {"s": "../..", "n": 1, "o": 0}, {"s": "x", "n": "y", "o": None}, {}):
            dealer.send(encode_message(MessageKind.FLUSH, header))
            dealer.send(encode_message(MessageKind.HINT, header))
        dealer.send_multipart([b"a", b"b", b"c"])


def write_mutated(spool: Path, root: Path, chance: random.Random, count: int) -> str:
    """A stream of mutated frames with a run of its own at `root`; its name."""
    for kind in ("log", "checkpoint", "other_results", "code"):
        (root / kind).mkdir(parents=True)
    found = os.stat(root)
    opening = {
        "run": new_stream_name(), "epoch": 1, "opened": time.time(), "root": str(root),
        "root_device": found.st_dev, "root_inode": found.st_ino,
        "folders": {kind: kind for kind in ("log", "checkpoint", "other_results", "code")}, "names": {},
        "sinks": ["csv", "json", "log", "tensorboard"], "table": "t", "index": "i", "primary": True,
        "label": "", "pid": os.getpid(), "host": "h", "user": "u", "python": "p", "client": "0",
        "config": None, "offline": False,
    }  # fmt: skip
    writer = SegmentWriter(
        spool,
        lambda number, rows: encode_frame(
            FrameKind.OPEN, pack({**opening, "segment": number, "rows": rows, "lost": 0})
        ),
    )
    for frame in frames(chance, count):
        writer.append(frame, 0)
    writer.append(encode_frame(FrameKind.ROW, pack([1, 1.5, {"last": 1}])), 1)
    writer.close()
    return writer.name


def tree(folder: Path, *, without: tuple[Path, ...]) -> set[str]:
    """Names of everything below a folder, some parts left out."""
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in without]
        found.update(os.path.join(place, name) for name in (*folders, *files))
    return found


def p99(path: Path) -> float:
    """Of 1,500 calls that a trainer timed, in seconds; of more calls, the same number of longest ones."""
    return sorted(map(float, path.read_text().split()))[int(-0.01 * 1500)]


class Grown:
    """How far the memory of a process rose, at the times it was looked at."""

    def __init__(self, pid: int) -> None:
        self._memory = psutil.Process(pid).memory_info
        self._first = self._memory().rss
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, self._memory().rss - self._first)


def feed(bench: Bench, chance: random.Random, count: int) -> float:
    """Let the agent take in `count` mutated frames beside an honest run; how much its p99 rose."""
    pace = ("--burst", "20", "--pause", "0.02", "--segment-bytes", "262144")
    evil, spared = bench.folder / "evil", (bench.folder / "evil", bench.folder / "honest", bench.places.state)
    before, beside = bench.folder / "times-before", bench.folder / "times-beside"
    bench.serve()
    bench.train("quiet", "--rows", "1500", "--times", str(before), *pace).ended()
    write_mutated(bench.places.spool, evil / "first", chance, 500)  # what is imported and cached once
    bench.agent.drain(bench.wait_until, 120)
    grown = Grown(bench.agent.process.pid)  # type: ignore[union-attr]
    outside = tree(bench.folder, without=spared)
    made = bench.folder / "made"  # before, so that only the agent competes with the honest run
    made.mkdir()
    streams = [
        write_mutated(made, evil / str(fed), chance, FRAMES_A_STREAM)
        for fed in range(0, count, FRAMES_A_STREAM)
    ]
    honest = bench.train("honest", "--times", str(beside), *pace)
    for stream in streams:
        (made / stream).rename(bench.places.spool / stream)
        grown.look()
        bench.wait_until(
            lambda: len(stream_names(bench.places.spool)) < 8,
            120,
            what=lambda: f"progress; {bench.agent.tail()}",
        )
    bench.wait_until(lambda: honest.told >= 200, what="rows of the honest run")
    honest.stop()
    bench.agent.drain(bench.wait_until, 120)
    grown.look()
    check_folder(honest)
    assert tree(bench.folder, without=spared) - outside <= {str(beside), str(made)}
    assert all((run / "log" / "progress.csv").read_text().splitlines()[0] for run in evil.iterdir())
    print(
        f"{count} mutated frames: agent grew by {grown.most >> 20} MiB, the others' p99 went from "
        f"{p99(before) * 1e6:.0f} to {p99(beside) * 1e6:.0f} us"
    )
    assert grown.most <= MOST_GROWTH
    return p99(beside) / max(p99(before), SCHEDULER_S)


def test_garbage_connections_and_mutated_messages(bench: Bench) -> None:
    bench.serve()
    send_garbage(bench.places, random.Random(11), 400, 3000)
    assert bench.agent.serves()
    assert ask_status(bench.places)["agent"]["pid"] == bench.agent.process.pid  # type: ignore[union-attr]


@pytest.mark.soak
def test_two_thousand_garbage_connections(bench: Bench, chance: random.Random) -> None:
    bench.serve()
    pid = bench.agent.process.pid  # type: ignore[union-attr]
    send_garbage(bench.places, chance, 200, 3000)
    grown = Grown(pid)
    send_garbage(bench.places, chance, 2000, 100_000)
    bench.wait_until(bench.agent.serves)
    grown.look()
    print(f"2,000 garbage connections, 100,000 mutated messages: agent grew by {grown.most >> 20} MiB")
    assert grown.most <= MOST_GROWTH
    assert ask_status(bench.places)["agent"]["pid"] == pid


@pytest.mark.slow
def test_mutated_frames(bench: Bench, chance: random.Random) -> None:
    feed(bench, chance, 8000)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_mutated_frames_beside_an_honest_run(bench: Bench, chance: random.Random) -> None:
    assert feed(bench, chance, 100_000) <= OTHERS_RATIO


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
def test_no_frame_upsets_the_decoder(count: int, chance: random.Random) -> None:
    taken = parked = 0
    for _ in range(count // 100):
        data = b"".join(frames(chance, 100))
        try:
            batch = parse(data, 1, 0, final=True)
        except UnknownVersionError:  # the only error there may be: flipped bytes made a later version
            parked += 1
            continue
        assert batch.end <= len(data)
        taken += len(batch.records)
    print(f"{count} mutated frames: {taken} were taken for records, {parked} pieces for a later version")
    assert taken > count // 20


def test_a_number_beyond_every_float(tmp_path: Path) -> None:
    """A whole number that no double holds is an infinity in the event file, and written out elsewhere."""
    lone = LoneStream(tmp_path)
    for value in (10**400, -(10**400), 1e300, 2**70):
        lone.row({"huge": value})
    with Side(lone) as side:
        side.read_all()
        assert side.commit()
    assert str(10**400) in (lone.root / "progress.csv").read_text()
    (events,) = (lone.root / "tb" / "events").iterdir()
    assert len(event_records(events)) == 5
