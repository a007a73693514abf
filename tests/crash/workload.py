"""A training process for the crash tests: logs at full speed and tells its parent what returned.

    python workload.py FOLDER PIPE [options]

After each call of the logger that returned, six bytes go through the pipe (descriptor PIPE): stream,
kind, sequence number. So the parent knows what must never be lost, whatever happens to this process; and,
after a flush that returned True, what must survive a power cut too.
Stream 0 is this process, stream 1 a forked worker. Rows hold numbers, text that needs quoting, and
keys that come late; every TEXT_EVERY rows a line of text goes out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import struct
import sys
import tempfile
import time
from types import FrameType

TOLD = struct.Struct("<BBI")
ROW, TEXT, DURABLE, SAMPLES = 0, 1, 2, 3
SAMPLES_EVERY = 20  # rows between two calls of log_samples, where there are any
TEXT_EVERY = 50
LATE_EVERY = 400
MAX_LATE_KEYS = 12
BACK_TO_1970_S = 86400.0


def row_of(stream: int, seq: int) -> dict[str, object]:
    """What row `seq` of a stream holds."""
    row: dict[str, object] = {"seq": seq, "stream": stream, "perf/value": seq * 0.5}
    if seq % 7 == 0:
        row["note"] = f'a, "{seq}"\nb'
    if seq % LATE_EVERY == 0 and 0 < seq // LATE_EVERY <= MAX_LATE_KEYS:
        row[f"late/{seq // LATE_EVERY:02d}"] = seq
    return row


def text_of(stream: int, seq: int) -> str:
    """The line of text before row `seq`."""
    return f"text {stream} {seq} end"


def samples_of(stream: int, chunk: int, count: int) -> list[dict[str, object]]:
    """What call number `chunk` of log_samples holds."""
    rows = range(chunk * count, (chunk + 1) * count)
    return [
        {"seq": seq, "stream": stream, "prompt": f"p{seq % 4}", "completion": f"text {seq} \n" * 80}
        for seq in rows
    ]


class Stop:
    """Whether the parent asked for an orderly end (SIGUSR1, or SIGTERM of the worker)."""

    asked = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        Stop.asked = True


def main() -> None:
    """Log until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("pipe", type=int)
    parser.add_argument("--rows", type=int, default=1 << 30)
    parser.add_argument("--burst", type=int, default=0, help="rows between pauses")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--worker", action="store_true", help="fork a second stream")
    parser.add_argument("--segment-bytes", type=int, default=8 << 20)
    parser.add_argument("--sinks", default="csv,json,log,tensorboard")
    parser.add_argument("--times", help="file for seconds that each dump_tabular took, and a bare write")
    parser.add_argument("--floor", action="store_true", help="also time a bare write(2) of 200 bytes a row")
    parser.add_argument("--flush-every", type=int, default=0, help="rows between flushes")
    parser.add_argument("--samples", type=int, default=0, help="rows of each call of log_samples")
    parser.add_argument("--jump-clock", action="store_true", help="the wall clock goes a day back and forth")
    options = parser.parse_args()

    from rla_client import logger
    from rla_client.stream import segment_writer

    segment_writer.SEGMENT_MAX_BYTES = options.segment_bytes  # type: ignore[attr-defined]
    if options.jump_clock:
        jump_clock()
    signal.signal(signal.SIGUSR1, Stop())
    logger.configure(options.folder, options.sinks.split(","))
    logger.set_level(logger.INFO)
    worker, own = 0, os.getpid()
    if options.worker:
        worker = os.fork()
        if worker == 0:
            signal.signal(signal.SIGTERM, Stop())
            log(1, options, own)
            sys.exit(0)
    log(0, options, os.getppid())
    if worker:
        os.kill(worker, signal.SIGTERM)
        os.waitpid(worker, 0)
    logger.reset()


def log(stream: int, options: argparse.Namespace, parent: int) -> None:
    """Log rows 0, 1, 2, … and tell after each, until `parent` is gone: a worker's may be before it asks."""
    from rla_client import log_samples, logger

    pipe = options.pipe
    times: list[str] = []
    floor = Floor() if options.floor else None
    for seq in range(options.rows):
        if Stop.asked or os.getppid() != parent:
            break
        if seq % TEXT_EVERY == 0:
            logger.info(text_of(stream, seq))
            os.write(pipe, TOLD.pack(stream, TEXT, seq))
        logger.set_time(seq)
        if options.samples and seq % SAMPLES_EVERY == 0:
            chunk = seq // SAMPLES_EVERY
            log_samples(samples_of(stream, chunk, options.samples))
            os.write(pipe, TOLD.pack(stream, SAMPLES, chunk))
        for key, value in row_of(stream, seq).items():
            logger.record_tabular(key, value)
        began = time.perf_counter()
        logger.dump_tabular()
        took = time.perf_counter() - began
        times.append(f"{took}\n" if floor is None else f"{took} {floor.time_write()}\n")
        os.write(pipe, TOLD.pack(stream, ROW, seq))
        if options.flush_every and seq % options.flush_every == options.flush_every - 1 and logger.flush(2.0):
            os.write(pipe, TOLD.pack(stream, DURABLE, seq))
        if options.burst and seq % options.burst == 0:
            with contextlib.suppress(InterruptedError):
                select.select([], [], [], options.pause)
    if options.times:
        with open(options.times, "w", encoding="ascii") as file:
            file.writelines(times)


class Floor:
    """A bare write(2) into a file that has no name, on the disk of temporary files."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the process

    def time_write(self) -> float:
        """Seconds that one took."""
        began = time.perf_counter()
        self._file.write(b"x" * 200)
        return time.perf_counter() - began


def jump_clock() -> None:
    """Make the wall clock of this process jump by a day every few hundred calls."""
    real, calls = time.time, [0]

    def jumping() -> float:
        calls[0] += 1
        return real() + (-BACK_TO_1970_S, 0.0, BACK_TO_1970_S)[calls[0] // 300 % 3]

    time.time = jumping


if __name__ == "__main__":
    main()
