"""Entry point of the replicator's process (`python -m rla_agent.replicate.worker.main --state DIR`).

It ends on SIGTERM, SIGINT, or when its parent is gone (`--parent PID`).
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from rla_agent.replicate.worker.worker import Replicator
from rla_agent.replicate.worker.worker_log import WORKER_LOG, log_beside_the_agent, log_to
from rla_client.contract.errors import RlaError


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry."""
    parser = argparse.ArgumentParser(prog="rla_agent.replicate.worker.main")
    parser.add_argument("--state", type=Path, required=True, help="the agent's state folder")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    parser.add_argument("--host", default=socket.gethostname(), help="this machine's name in run.json")
    options = parser.parse_args(arguments)
    log_to(options.state / "replicate" / WORKER_LOG)
    log_beside_the_agent(options.state)
    try:
        worker = Replicator(options.state, options.host)
    except RlaError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the process's only output
        return 3
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(worker))
    try:
        worker.run(options.parent)
    finally:
        worker.close()
    return 0


def _stop(worker: Replicator) -> None:
    worker.stopping = True
    worker.wake()


if __name__ == "__main__":
    sys.exit(main())
