"""A bucket as the master, beside the library's own put: a large file, many small ones, a row, requests.

    python tests/bench/bench_bucket.py [--mib 256] [--files 500] [--seconds 60]

Ratios are speeds, ours over obstore's own put of the same bytes (the budget: ≥ 0.5 for both). The store is
moto's server on loopback, which is slow: it, more than our code, is what small files wait for.
"""

from __future__ import annotations

# ruff: noqa: E402 - the paths come first
import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.bucket_lab import KEYS, BucketPath, S3Server, opened, remote
from support.faulty_store import FaultyStore
from support.replication_lab import Node
from support.waiting import wait_until

from rla_agent.replicate import registry
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.worker.worker import Replicator
from rla_client.config.schema import RemoteSetting

ROUNDS = 3
AT_ONCE = 16
COMMIT_S = 0.5  # AGENT.commit_interval_s


def library(server: S3Server, bucket: str, files: list[Path]) -> float:
    """Seconds that the library's own put takes, small files concurrently."""
    import obstore

    from rla_agent.replicate.backend.bucket_login import BULK_S
    from rla_agent.replicate.backend.bucket_login import object_store as _store

    setting = RemoteSetting(**remote(server, bucket))  # type: ignore[arg-type]
    store = _store(setting, BULK_S)
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda path: obstore.put(store, f"own/{path.name}", path), files))
    return time.monotonic() - began


def _sent(worker: Replicator) -> int:
    return sum(served.database.counters.sent_files for served in worker._served.values())


def bulk(base: Path, server: S3Server, title: str, sizes: list[int]) -> None:
    pushes, workers = [], []
    for turn in range(ROUNDS):
        bucket = server.bucket()
        node = Node(base / f"{title}{turn}", remote(server, bucket))
        node.run(state="finished")
        folder = node.item("results")
        files = [folder / f"{number}.bin" for number in range(len(sizes))]
        for path, size in zip(files, sizes, strict=True):
            path.write_bytes(os.urandom(size))
        own_s = library(server, bucket, files)
        began = time.monotonic()
        session = opened(server, bucket)
        tally = push(session, str(node.root), ItemSelection())
        push_s = time.monotonic() - began
        session.close()
        assert not tally.failed, tally.failed
        node.remote["remote_data_root"] = "worker"
        node.write_config()
        registry.add(node.state, node.root, node.config)
        worker = Replicator(node.state, node.host)
        began = time.monotonic()
        while _sent(worker) <= len(sizes):
            worker._wait(0.0 if worker.turn(time.monotonic()) else 0.05)
        worker_s = time.monotonic() - began
        worker.close()
        pushes.append(own_s / push_s)
        workers.append(own_s / worker_s)
        speed = sum(sizes) / worker_s / 2**20
        print(
            f"{title}: library {own_s:.2f} s, worker {worker_s:.2f} s, push {push_s:.2f} s, "
            f"{speed:.0f} MiB/s, {len(sizes) / worker_s:.0f} files/s; "
            f"ratio worker {workers[-1]:.2f}, push {pushes[-1]:.2f}"
        )
    medians = statistics.median(workers), statistics.median(pushes)
    print(f"{title}: ratio, median of {ROUNDS}: worker {medians[0]:.2f}, push {medians[1]:.2f}")


def rows(base: Path, server: S3Server, seconds: float) -> None:
    """A run that writes a row into three logs at each commit: when it is there, and what that costs."""
    bucket, store = server.bucket(), FaultyStore(server.port)
    node = Node(base / "rows", remote(server, bucket, endpoint=store.endpoint))
    registry.add(node.state, node.root, node.config)
    log = node.run()
    paths = [log / "progress.csv", log / "log.txt", log / "progress.rank1.csv"]
    for path in paths:
        path.write_text("number\n")
    node.start()
    announcer = Announcer(node.state)
    there = BucketPath(server, bucket) / str(paths[0].relative_to(node.root))
    wait_until(there.exists, 30)
    reader = opened(server, bucket)
    name = str(paths[0].relative_to(node.root)).encode()
    time.sleep(10)
    store.requests.clear()
    began, written, seen = time.monotonic(), 0, 0
    lags: list[float] = []
    dumped: dict[int, float] = {}
    while (now := time.monotonic()) - began < seconds:
        if now >= began + written * COMMIT_S:
            written += 1
            for one in paths:
                with one.open("a") as file:
                    file.write(f"{written}\n")
            dumped[written] = now
            announcer.committed((str(one), 0, one.stat().st_size, False) for one in paths)
        state = reader.stat(name)
        text = reader.read(name, 0, state.size if state else 0).decode()
        last = int(text.split("\n")[-2]) if text.count("\n") > 1 else 0
        lags.extend(time.monotonic() - dumped[number] for number in range(seen + 1, last + 1))
        seen = max(seen, last)
        time.sleep(0.05)
    took = time.monotonic() - began
    count = len(store.requests)
    appends = sum("/.rla-parts/" in path and method == "PUT" for _, method, path in store.requests)
    status = sum("/.rla-fleet/" in path or "fleet" in path for _, _, path in store.requests)
    node.kill()
    store.close()
    lags.sort()
    print(
        f"row visible after p50 {lags[len(lags) // 2]:.2f}, p99 {lags[int(len(lags) * 0.99)]:.2f}, "
        f"max {lags[-1]:.2f} s; {len(lags)} rows, 3 logs"
    )
    print(
        f"requests in {took:.0f} s: {count}, appends {appends}, of the machine's status file {status}; "
        f"for the run {(count - status) / took * 5:.2f} each 5 s, appends alone {appends / took * 5:.2f}"
    )
    for moment, method, key in store.requests:
        if "/.rla-parts/" not in key or method != "PUT":
            print(f"  {moment - began:6.1f} {method} {key[-60:]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        server = S3Server(Path(folder) / "s3")
        try:
            rows(Path(folder), server, options.seconds)
            bulk(Path(folder), server, "large", [options.mib << 20])
            bulk(Path(folder), server, "small", [4096] * options.files)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
