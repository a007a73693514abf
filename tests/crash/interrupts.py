"""A training process under a hail of signals whose handlers raise, or log; two threads log.

    python interrupts.py FOLDER EXCEPTIONS RESULT

RESULT (JSON) then says which rows of each thread returned, which were tried, and the number of exceptions.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from types import FrameType

INTERVAL_S = 60e-6
LOGS_FROM_HANDLER = 0.1


class HailError(Exception):
    """Raised by the handler, anywhere."""


def main() -> None:  # noqa: C901 - closures over one state
    """Log until enough exceptions came."""
    from rla_client import logger
    from rla_client.stream import segment_writer

    folder, wanted, result = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    segment_writer.SEGMENT_MAX_BYTES = 64 << 10  # type: ignore[attr-defined]
    logger.configure(folder, ["csv", "tensorboard"])
    current = logger.get_current()
    returned: dict[str, list[int]] = {"main": [], "thread": [], "handler": []}
    tried = {"main": 0, "thread": 0, "handler": 0}
    chance = random.Random(1)
    raised = [0]
    over = threading.Event()
    armed = [False]  # an exception disarms: none comes before it was caught

    def log(who: str) -> None:
        seq = tried[who]
        tried[who] += 1
        with current.lock:
            logger.record_tabular("who", who)
            logger.record_tabular("seq", seq)
            logger.dump_tabular()
        returned[who].append(seq)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if not armed[0]:
            return
        if chance.random() < LOGS_FROM_HANDLER:
            if not current.pending:  # else its row would be the interrupted one's
                log("handler")
            return
        raised[0] += 1
        armed[0] = False
        raise HailError

    def other() -> None:
        while not over.is_set():
            log("thread")
            over.wait(0.002)

    signal.signal(signal.SIGALRM, on_signal)
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
    while raised[0] < wanted:
        try:
            armed[0] = True
            for _ in range(100):
                log("main")
            armed[0] = False
        except HailError:
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    over.set()
    thread.join()
    logger.reset()
    with open(result, "w", encoding="utf-8") as file:
        json.dump({"returned": returned, "tried": tried, "raised": raised[0]}, file)


if __name__ == "__main__":
    main()
