"""Many clients in one process, each with a stream, a socket and a data root of its own.

    python clients.py FOLDER FIRST COUNT RATE SECONDS RESULT

Clients FIRST … FIRST + COUNT - 1 log RATE rows a second each into FOLDER/<number>; RATE 0 means as fast as
it goes. They open their streams, make FOLDER/ready-FIRST and begin when FOLDER/go is there. RESULT (JSON)
then holds the rows of each client, the durations of all calls and, as floor, of a bare write(2) of the same
row before each tenth of them, in seconds. The sockets share one ZeroMQ context: a thousand would be a
thousand processes, which is not what is tested.
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import os
import random
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import find_places
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.contract.spool.segments import new_stream_name
from rla_client.stream.outbox import Outbox

FLOOR_EACH = 10


def new_client(folder: Path) -> Outbox:
    """One stream with a CSV and an event file."""
    folder.mkdir(parents=True)
    found = os.stat(folder)
    opening: dict[str, Any] = {
        "run": new_stream_name(), "epoch": 1, "opened": time.time(), "root": str(folder),
        "root_device": found.st_dev, "root_inode": found.st_ino, "folders": {"log": "."}, "names": {},
        "sinks": ["csv", "tensorboard"], "table": "", "index": "", "primary": True, "label": "",
        "pid": os.getpid(), "host": "h", "user": "u", "python": "p", "client": "0", "config": None, "offline": False,
    }  # fmt: skip
    return Outbox(find_places(), Opening.from_fields(opening), AgentConfig(autostart=False))


def main() -> None:
    """Log until the time is over."""
    folder, first, count, rate = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    seconds, result = float(sys.argv[5]), sys.argv[6]
    clients = [new_client(folder / str(first + index)) for index in range(count)]
    rows = [0] * count
    times, floor = array("d"), array("d")
    bare = os.open(folder / f"bare-{first}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    (folder / f"ready-{first}").touch()
    parent = os.getppid()
    while not (folder / "go").exists() and os.getppid() == parent:
        time.sleep(0.02)
    begin = time.monotonic()
    pause = 1 / rate if rate else 0.0
    due = sorted((begin + random.random() * pause, index) for index in range(count))
    turn = 0
    while True:
        turn += 1
        for moment, index in due:
            at = moment + (turn - 1) * pause
            now = time.monotonic()
            if now - begin > seconds:
                break
            if at > now:
                time.sleep(at - now)
            if len(times) % FLOOR_EACH == 0:  # as the call otherwise does, it comes right after the sleep
                called = time.perf_counter()
                os.write(bare, pack([rows[index], time.time(), {"seq": 0, "loss": 0.5, "reward": 1.5}]))
                floor.append(time.perf_counter() - called)
            payload = pack([rows[index], time.time(), {"seq": rows[index], "loss": 0.5, "reward": 1.5}])
            called = time.perf_counter()
            clients[index].put(FrameKind.ROW, payload, time.time(), 1)
            times.append(time.perf_counter() - called)
            rows[index] += 1
        else:
            continue
        break
    for client in clients:
        client.close("finished", "")
    with open(result, "w", encoding="ascii") as file:
        json.dump(
            {
                "rows": {first + index: rows[index] for index in range(count)},
                "times": list(times),
                "floor": list(floor),
            },
            file,
        )


if __name__ == "__main__":
    main()
