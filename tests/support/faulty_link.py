"""A link between a node and its master that fails: a TCP proxy with cuts, black holes and a throttle."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable

from rla_agent.replicate import command_markers
from support.ports import free_port
from support.replication_lab import (
    Node,
    Sshd,
    finished_item,
    random_bytes,
    wait_same,
)
from support.waiting import TIME_FACTOR, wait_until


class Proxy:
    """A TCP proxy with faults: cuts after so many bytes, black holes, a throttle."""

    def __init__(self, target_port: int, target: str = "127.0.0.1") -> None:
        self.port = free_port()
        self._target = (target, target_port)
        self.cut_after: Callable[[], int] | None = None
        self.bytes_per_s = 0
        self.hole = False
        self.cuts = 0
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._thread.start()
        assert self._started.wait(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, back}
        budget = [self.cut_after() if self.cut_after is not None else -1]
        await asyncio.wait(
            [
                asyncio.ensure_future(self._pump(reader, back, budget)),
                asyncio.ensure_future(self._pump(there, writer, budget)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for side in (writer, back):
            side.transport.abort()
        self._writers -= {writer, back}

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int]
    ) -> None:
        try:
            while data := await reader.read(
                max(256, self.bytes_per_s // 50) if self.bytes_per_s else 1 << 16
            ):
                while self.hole:  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.02)
                if budget[0] >= 0 and len(data) >= budget[0]:
                    writer.write(data[: budget[0]])
                    self.cuts += 1
                    return
                if budget[0] >= 0:
                    budget[0] -= len(data)
                writer.write(data)
                await writer.drain()
                if self.bytes_per_s:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
        except (OSError, asyncio.CancelledError):
            return

    def cut_now(self) -> None:
        """Cut all connections."""

        def cut() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def close(self) -> None:
        self.cut_now()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


def cut_the_link(node: Node, master: Sshd, proxy: Proxy, count: int, seed: int) -> None:
    """Files come, grow, are rewritten and vanish while the link is cut at random bytes."""
    chance = random.Random(seed)
    finished_item(node)
    log = node.run()
    partial: list[str] = []
    stop = threading.Event()

    def look_for_partials() -> None:
        while not stop.is_set():
            for path in master.root.rglob("big*.bin"):
                size = path.stat().st_size
                if size % 700_001:
                    partial.append(f"{path.name}: {size}")
            stop.wait(0.01)

    watcher = threading.Thread(target=look_for_partials, daemon=True)
    watcher.start()
    proxy.cut_after = lambda: int(5000 + 10 ** chance.uniform(2, 6))
    node.start()
    number = 0
    end = time.monotonic() + (30 + count * 2) * TIME_FACTOR
    while proxy.cuts < count and time.monotonic() < end:
        number += 1
        with (log / "progress.csv").open("a") as file:
            file.write(f"{number},{chance.random()}\n" * chance.randrange(1, 200))
        big = node.item("results") / f"big{number % 5}.bin"
        temp = big.with_name(".rla-tmp-big")
        temp.write_bytes(random_bytes(700_001 * chance.randrange(1, 4), number))
        temp.replace(big)
        if number % 7 == 0:
            (node.item("tmp_data") / f"inplace{number % 3}").write_bytes(
                random_bytes(chance.randrange(60_000), number)
            )
        command_markers.ask_retry(node.state)  # a long row of cuts has a long backoff
        time.sleep(0.05)
    assert proxy.cuts >= count
    proxy.cut_after = None
    node.run(state="finished")
    command_markers.ask_retry(node.state)
    wait_same(node, master.root, 90)
    stop.set()
    watcher.join()
    assert partial == []
    wait_until(lambda: not list(master.root.rglob(".rla-tmp*")), 30, "orphan temp files being removed")
