"""Many nodes and one master: what it takes on the master, and when it comes back after it was away.

    python tests/bench/bench_nodes.py [--nodes 1000] [--on sftp] [--seconds 60] [--connections 2]

A node is what the replicator of a machine is, with its own ledger, state folder, data root and connections,
but many of them share a process, and no training and no agent run beside them. Each has one live
run, whose `progress.csv` and `log.txt` grow by a row every `--row-s` seconds. All of it, the nodes' part too,
runs on this machine's cores, so rates per second say little: what counts is the master's CPU time, memory,
connections and requests for each node, from which follows how many nodes a master serves.
"""

from __future__ import annotations

# ruff: noqa: E402 - the paths come first
import argparse
import logging
import math
import multiprocessing
import os
import resource
import select
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import psutil
from support.bucket_lab import KEYS, S3Server
from support.bucket_lab import remote as bucket_remote
from support.replication_lab import Node, Sshd

from rla_agent.replicate import registry
from rla_agent.replicate.backend.sftp_wire import Wire
from rla_agent.replicate.worker.worker import Replicator

if TYPE_CHECKING:
    from typing_extensions import Self

PROCESSES = 4
SAMPLED = 100  # nodes whose lag is looked at
ROW_BYTES = 40
SETTLED_S = 15.0  # no node is further behind than this: the master has caught up
PATIENCE_S = 900.0
AWAY_S = 60.0
MAX_STARTUPS = ("10:30:100", "200:30:2000")  # sshd's default; one for many nodes


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--on", choices=("sftp", "bucket"), default="sftp")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--row-s", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--max-startups", nargs="+", default=MAX_STARTUPS)
    parser.add_argument("--append-every-s", type=float, default=4.6)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    base = Path(tempfile.mkdtemp(prefix="rla-nodes-"))
    os.environ["HOME"] = str(base)
    os.environ.pop("SSH_AUTH_SOCK", None)
    try:
        if chosen.on == "sftp":
            for startups in chosen.max_startups:
                over_sftp(base / startups.partition(":")[0], chosen, startups)
        else:
            into_a_bucket(base / "bucket", chosen)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def over_sftp(base: Path, chosen: argparse.Namespace, startups: str) -> None:
    """The nodes meet an sshd: all at once, for a while, and after it was away."""
    server = Sshd(base, f"MaxStartups {startups}", "UseDNS no", "LogLevel ERROR").start()
    print(f"\n{chosen.nodes} nodes, sshd with MaxStartups {startups}", flush=True)
    remote = server.remote(connections=chosen.connections, append_every_s=chosen.append_every_s)
    with closing_server(server), Fleet(base / "nodes", remote, chosen) as fleet:
        settled = fleet.until_settled(server.root)
        print(f"  all nodes begin at once: caught up after {settled:.0f} s", flush=True)
        before, began = fleet.told(), time.monotonic()
        cpu, rows, lags = _cpu_s(server), fleet.rows(), []
        while time.monotonic() - began < chosen.seconds:
            lags += fleet.lags(server.root)
            time.sleep(1.0)
        took, after, used = time.monotonic() - began, fleet.told(), _cpu_s(server) - cpu
        rows = fleet.rows() - rows
        tree = _tree(server)
        print(
            f"  {took:.0f} s: {len(tree)} processes of sshd, {after['connections']} connections, "
            f"{_pss(tree) / 1e6 / chosen.nodes:.1f} MB a node; "
            f"{rows / took:.0f} rows/s; {1000 * used / rows:.2f} ms of the master's CPU and "
            f"{(after['requests'] - before['requests']) / rows:.2f} requests a row; lag p50 "
            f"{statistics.median(lags):.1f} s, p99 {sorted(lags)[int(len(lags) * 0.99)]:.1f} s",
            flush=True,
        )
        server.stop()
        time.sleep(AWAY_S)
        server.start()
        back_s = fleet.until_settled(server.root)
        print(f"  the master was away for {AWAY_S:.0f} s: caught up after {back_s:.0f} s", flush=True)


def into_a_bucket(base: Path, chosen: argparse.Namespace) -> None:
    """The nodes meet an S3 server: what they ask of it."""
    os.environ.update(KEYS)
    server = S3Server(base)
    bucket, earlier = server.bucket(), len(server.requests())
    print(f"\n{chosen.nodes} nodes, one bucket", flush=True)
    with (
        closing_server(server),
        Fleet(base / "nodes", bucket_remote(server, bucket, append_every_s=chosen.append_every_s), chosen),
    ):
        began = time.monotonic()
        while (seen := sum(_is_first(word) for word in server.requests()[earlier:])) < chosen.nodes:
            if time.monotonic() - began > PATIENCE_S:
                break
            time.sleep(5.0)
        took = time.monotonic() - began
        print(f"  all nodes begin at once: first files of {seen} came in {took:.0f} s", flush=True)
        before, began = server.requests(), time.monotonic()
        time.sleep(chosen.seconds)
        asked, took = server.requests()[len(before) :], time.monotonic() - began
        for kind, count in sorted(Counter(map(_priced_as, asked)).items()):
            print(f"  {kind}: {60 * count / took / chosen.nodes:.2f} a node and minute", flush=True)


def _is_first(request: str) -> bool:
    """Whether it puts the run.json of a node's only run."""
    return request.startswith("PUT ") and "/run.json " in request


def _priced_as(request: str) -> str:
    """GET, PUT, …, or LIST, which costs as much as a PUT."""
    return "LIST" if "list-type=" in request else request.split(maxsplit=1)[0]


@contextmanager
def closing_server(server: Sshd | S3Server) -> Iterator[None]:
    """Stop it at the end."""
    try:
        yield
    finally:
        server.stop()


class Fleet:
    """The nodes, in a few processes."""

    def __init__(self, base: Path, remote: dict[str, object], chosen: argparse.Namespace) -> None:
        self._nodes = [_node(base, remote, number) for number in range(chosen.nodes)]
        self._row_s = chosen.row_s
        self._processes = []
        self._pipes: list[Connection] = []
        context = multiprocessing.get_context("fork")
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            arguments = (self._nodes[number::PROCESSES], chosen.row_s, theirs)
            self._processes.append(context.Process(target=_serve, args=arguments, daemon=True))
            self._processes[-1].start()
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def told(self) -> dict[str, int]:
        """Connections and requests of all nodes."""
        for pipe in self._pipes:
            pipe.send("tell")
        answers = [pipe.recv() for pipe in self._pipes]
        return {name: sum(answer[name] for answer in answers) for name in answers[0]}

    def lags(self, root: Path, step: int = 0) -> list[float]:
        """Seconds of rows that the master lacks, of some nodes; of each `step`th where that is given."""
        found = []
        for node in self._nodes[:: step or max(1, len(self._nodes) // SAMPLED)]:
            path = _progress(node)
            there = root / path.relative_to(node.root)
            if there.exists():
                found.append((path.stat().st_size - there.stat().st_size) / ROW_BYTES * self._row_s)
            else:
                found.append(math.inf)
        return found

    def rows(self) -> int:
        """How many rows the nodes have written."""
        return sum(_progress(node).stat().st_size for node in self._nodes) // ROW_BYTES

    def until_settled(self, root: Path) -> float:
        """Seconds until no node is far behind."""
        began = time.monotonic()
        while max(self.lags(root, 1)) > SETTLED_S:
            if time.monotonic() - began > PATIENCE_S:
                behind = sum(lag > SETTLED_S for lag in self.lags(root, 1))
                print(f"  after {PATIENCE_S:.0f} s {behind} nodes are still behind")
                break
            time.sleep(1.0)
        return time.monotonic() - began


def _node(base: Path, remote: dict[str, object], number: int) -> Node:
    """One machine with a live run."""
    node = Node(base / f"{number}", remote, host=f"node-{number}")
    folder = node.run(f"task/2026/11/21/09-30-01-{number:06d}_10.0.0.5_&seed={number}")
    for name in ("progress.csv", "log.txt"):
        (folder / name).write_bytes(b"")
    registry.add(node.state, node.root, node.config)
    return node


def _progress(node: Node) -> Path:
    (item,) = (node.root / "log/task/2026/11/21").iterdir()
    return item / "progress.csv"


def _serve(nodes: list[Node], row_s: float, pipe: Connection) -> None:
    """Run the replicators of some nodes in this process, and let their runs grow."""
    logging.disable()  # each node tells of each time the master is away
    requests = _counted()
    alive = [Living(node, row_s, row_s * place / len(nodes)) for place, node in enumerate(nodes)]
    poll = select.epoll()
    homes = {watched: one for one in alive for watched in one.watched()}
    for watched in homes:
        poll.register(watched, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll(0.02):
            homes[descriptor].woken()
        now = time.monotonic()
        for one in alive:
            one.live(now)
        if pipe.poll():
            pipe.recv()
            pipe.send({"connections": sum(one.connections for one in alive), "requests": requests[0]})


class Living:
    """A node that lives in this process."""

    def __init__(self, node: Node, row_s: float, first_s: float) -> None:
        self._worker = Replicator(node.state, node.host)
        path = _progress(node)
        flags = os.O_WRONLY | os.O_APPEND
        self._files = [os.open(path.with_name(name), flags) for name in ("progress.csv", "log.txt")]
        self._row_s = row_s
        self._due = time.monotonic()
        self._row_at = self._due + first_s

    @property
    def connections(self) -> int:
        return sum(len(served.database.link._sessions) for served in self._worker._served.values())

    def watched(self) -> tuple[int, int]:
        return self._worker._listener.fileno(), self._worker._wake_in.fileno()

    def woken(self) -> None:
        with suppress(BlockingIOError):
            self._worker._wake_in.recv(4096)
        self._due = 0.0

    def live(self, now: float) -> None:
        if now >= self._row_at:
            self._row_at += self._row_s
            for file in self._files:
                os.write(file, f"{now:020.6f},".encode().ljust(ROW_BYTES - 1, b"0") + b"\n")
        if now >= self._due:
            more = self._worker.turn(now)
            self._due = now if more else now + self._worker.tick(now)


def _counted() -> list[int]:
    """How many requests the SFTP sessions of this process have sent so far."""
    count = [0]
    submit = Wire.submit

    def counted(self: Wire, request: bytes, body: bytes | memoryview = b"", *, syncs: bool = False) -> int:
        count[0] += 1
        return submit(self, request, body, syncs=syncs)

    Wire.submit = counted  # type: ignore[method-assign]
    return count


def _tree(server: Sshd) -> list[psutil.Process]:
    assert server._process is not None
    root = psutil.Process(server._process.pid)
    return [root, *root.children(recursive=True)]


def _cpu_s(server: Sshd) -> float:
    total = 0.0
    for process in _tree(server):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def _pss(processes: list[psutil.Process]) -> int:
    total = 0
    for process in processes:
        with suppress(OSError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


if __name__ == "__main__":
    main()
