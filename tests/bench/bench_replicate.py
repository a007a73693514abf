"""Replication beside `rsync -a -e ssh`, in one run: a large file, many small ones, the lag of a row.

    python tests/bench/bench_replicate.py [--mib 1024] [--files 2000] [--finished 100000] [--quick]
    python tests/bench/bench_replicate.py --where /var/tmp --only small   # on a real disk, all durable

Ratios are speeds, ours over rsync's (the budget on a real disk: large ≥ 0.8, small ≥ 0.6). Everything lies on
/dev/shm where there is one, so that the link and the code are measured, not the disk; with `--where` on a
disk, where ours syncs every file: it is compared with `rsync` and with `rsync --fsync`, and `--dirty MIB` are
written beside it just before each (0: none), as a copy of something else does.
"""

from __future__ import annotations

# ruff: noqa: E402 - the paths come first
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import psutil
from support.replication_lab import ITEM, Node, Sshd
from support.waiting import wait_until

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.registry import register
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.worker.worker import Replicator
from rla_client.config.schema import load_config

ROUNDS = 3


def has(path: Path, size: int) -> bool:
    """Whether so much of a file is there."""
    return path.exists() and path.stat().st_size >= size


def rsync(server: Sshd, source: Path, target: Path, *options: str) -> tuple[float, float]:
    """Wall and CPU seconds of one rsync."""
    shell = (
        f"ssh -p {server.port} -i {server.folder}/user -o StrictHostKeyChecking=no "
        "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes"
    )
    before = os.times()
    began = time.monotonic()
    where = f"{server.address}:{target}/"
    subprocess.run(["rsync", "-a", *options, "-e", shell, f"{source}/", where], check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu


def count(root: Path) -> int:
    total = 0
    for _, _, names in os.walk(root):
        total += sum(1 for name in names if not name.startswith(".rla-tmp"))
    return total


def settle(base: Path, dirty_mib: int) -> None:
    """Let no round pay for the one before; then leave so much unwritten data beside it."""
    os.sync()
    if dirty_mib:
        with (base / "dirty").open("wb") as file:
            for _ in range(dirty_mib):
                file.write(os.urandom(1 << 20))


def bulk(base: Path, server: Sshd, title: str, sizes: list[int], dirty_mib: int = 0) -> None:
    ratios, synced_ratios = [], []
    for turn in range(ROUNDS):
        node = Node(base / f"{title}{turn}", server.remote())
        node.run(state="finished")
        folder = node.item("results")
        for number, size in enumerate(sizes):
            (folder / f"{number}.bin").write_bytes(os.urandom(size))
        settle(base, dirty_mib)
        rsync_s, _ = rsync(server, node.root, server.root / f"rsync-{title}{turn}")
        settle(base, dirty_mib)
        synced_s, _ = rsync(server, node.root, server.root / f"fsync-{title}{turn}", "--fsync")
        settle(base, dirty_mib)
        target = server.root / f"ours-{title}{turn}"
        target.mkdir()
        node.remote["remote_data_root"] = str(target)
        node.write_config()
        config = load_config(node.config)
        began = time.monotonic()  # connecting included, as for rsync
        session = target_config.target(config, registry.folder(node.state)).open()
        tally = push(session, str(node.root), ItemSelection())
        push_s = time.monotonic() - began
        assert not tally.failed, tally.failed
        session.close()
        shutil.rmtree(target)
        target.mkdir()
        settle(base, dirty_mib)
        worker_s = ours_through_worker(node, target, len(sizes) + 1)
        total = sum(sizes)
        ratios.append(rsync_s / worker_s)
        synced_ratios.append(synced_s / worker_s)
        print(
            f"{title}: rsync {rsync_s:.2f} s, rsync --fsync {synced_s:.2f} s, "
            f"worker {worker_s:.2f} s, push {push_s:.2f} s, "
            f"{total / worker_s / 2**20:.0f} MiB/s, {len(sizes) / worker_s:.0f} files/s; "
            f"ratio worker {rsync_s / worker_s:.2f}, push {rsync_s / push_s:.2f}"
        )
        shutil.rmtree(node.folder)
        shutil.rmtree(target)
        for name in ("rsync", "fsync"):
            shutil.rmtree(server.root / f"{name}-{title}{turn}")
    print(
        f"{title}: ratio, median of {ROUNDS}: {statistics.median(ratios):.2f}, "
        f"to rsync --fsync {statistics.median(synced_ratios):.2f}"
    )


def ours_through_worker(node: Node, target: Path, files: int) -> float:
    """The real worker in this process: look, ledger, two connections; until the last rename."""
    registry.add(node.state, node.root, node.config)
    worker = Replicator(node.state, node.host)
    began = time.monotonic()
    while True:
        more = worker.turn(time.monotonic())
        sent = sum(served.database.counters.sent_files for served in worker._served.values())
        if sent >= files:
            took = time.monotonic() - began
            worker.close()
            assert count(target) >= files  # the status file and the sums may be there, too
            return took
        worker._wait(0.0 if more else 0.05)


def lag(base: Path, server: Sshd, finished: int) -> None:
    """How long a row takes to the master while `finished` files lie in the tree; and the idle cost."""
    (server.root / "lag").mkdir()
    node = Node(base / "lag", server.remote(remote_data_root=str(server.root / "lag")))
    for number in range(max(1, finished // 100)):
        folder = node.run(ITEM.replace("000001", f"{number:06d}"), state="finished")
        for name in range(99):
            (folder / f"{name}").write_bytes(b"x")
    log = node.run(ITEM.replace("10.0.0.5", "10.0.0.6"))
    (log / "progress.csv").write_text("a\n")
    register(node.state, node.root, node.config)
    node.start()
    assert node.process is not None
    total = count(node.root)
    wait_until(lambda: count(server.root / "lag") >= total, 900)
    usage = psutil.Process(node.process.pid)
    announcer = Announcer(node.state)
    lags = []
    before, began = usage.cpu_times(), time.monotonic()
    for number in range(60):
        path = log / ("log.txt", "progress.csv")[number % 2]
        with path.open("a") as file:
            file.write(f"{number}\n")
            size = file.tell()
        if number % 2:
            announcer.committed([(str(path), 0, size, False)])
        written = time.monotonic()
        remote = server.root / "lag" / path.relative_to(node.root)
        wait_until(partial(has, remote, size), 20)
        lags.append((time.monotonic() - written, number % 2 == 1))
        time.sleep(0.5)
    after = usage.cpu_times()
    core = (after.user + after.system - before.user - before.system) / (time.monotonic() - began)
    rss = usage.memory_info().rss >> 20
    announcer.close()
    node.stop()
    rsync_s, rsync_cpu = rsync(server, node.root, server.root / "lag")
    for told, way in ((True, "announced"), (False, "found")):
        values = sorted(value for value, was in lags if was == told)
        print(
            f"lag, {way}: p50 {values[len(values) // 2]:.2f} s, p95 {values[int(len(values) * 0.95)]:.2f} s"
        )
    print(
        json.dumps(
            {
                "finished_files": total,
                "core_share": round(core, 4),
                "rss_mib": rss,
                "rsync_rescan_s": round(rsync_s, 2),
                "rsync_rescan_cpu_s": round(rsync_cpu, 2),
            }
        )
    )


def start(base: Path, server: Sshd, files: int) -> None:
    """From the worker's start to a new row on the master, with a ledger of `files` sent files."""
    (server.root / "start").mkdir()
    node = Node(base / "start", server.remote(remote_data_root=str(server.root / "start")))
    log = node.run()
    register(node.state, node.root, node.config)
    target = target_config.target(load_config(node.config), registry.folder(node.state)).name
    ledger = Ledger(ledger_path(node.state))
    number = ledger.database(os.fsencode(node.root), target)
    for folder in range(files // 100):
        item = f"log/{ITEM.replace('000001', f'{folder:06d}')}".encode()
        row = ledger.folder(number, item, "log", item)
        for name in range(100):
            ledger._write(
                "INSERT INTO files(folder, name, db, state, prio, pending, not_before, seen, tries, ino, "
                "size, mtime_ns, ctime_ns, generation, acked, crc, head_crc, tail_crc, sha256, "
                "remote_mtime, sent_at) "
                "VALUES(?, ?, ?, 0, 0, 0, 0, 0, 0, 1, 1000, 1, 1, 0, 1000, 1, 1, 1, ?, 1, 1)",
                *(row, f"file-{name}".encode(), number, os.urandom(32)),
            )
    ledger.close()
    began = time.monotonic()
    node.start()
    assert node.process is not None
    path = log / "progress.csv"
    path.write_text("a\n1\n")
    remote = server.root / "start" / path.relative_to(node.root)
    wait_until(lambda: remote.exists() and remote.stat().st_size == 4, 60)
    took = time.monotonic() - began
    rss = psutil.Process(node.process.pid).memory_info().rss >> 20
    print(json.dumps({"ledger_files": files, "start_to_first_row_s": round(took, 2), "rss_mib": rss}))
    node.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--ledger", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("small", "large", "lag", "start"), help="one of them")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--where", help="a folder on the disk to measure on; default: /dev/shm")
    parser.add_argument(
        "--dirty", type=int, default=0, help="MiB of other data, unwritten, before each round"
    )
    options = parser.parse_args()
    if options.quick:
        options.mib, options.files, options.finished, options.ledger = 128, 1000, 2000, 100_000
    where = options.where or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
    base = Path(tempfile.mkdtemp(prefix="rla-bench-", dir=where))
    server = Sshd(base / "sshd").start()
    try:
        if options.only in {None, "small"}:
            bulk(base, server, "small", [4096] * options.files, options.dirty)
        if options.only in {None, "large"}:
            bulk(base, server, "large", [options.mib << 20], options.dirty)
        if options.only in {None, "lag"}:
            lag(base, server, options.finished)
        if options.only in {None, "start"}:
            start(base, server, options.ledger)
    finally:
        server.stop()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
