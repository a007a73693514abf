"""Progress bars of a transfer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rla_agent.replicate.transfer import tally
from rla_client.contract.text.terminal_text import printable

MAX_BARS: Final = 16


@contextmanager
def progress_bars() -> Iterator[tally.Say]:
    """A bar for each large file in transfer, on a terminal, with the remaining time once it is known."""
    from rich.console import Console  # noqa: PLC0415 - only when there is something to show
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    lock, count = threading.Lock(), 0
    tasks: dict[str, TaskID] = {}
    with Progress(transient=True, console=Console(stderr=True)) as bars:
        whole = bars.add_task("0 files", total=None)

        def say(path: str, done: int, total: int) -> None:
            nonlocal count
            with lock:
                if done < total:
                    if path not in tasks and len(tasks) < MAX_BARS:
                        tasks[path] = bars.add_task(printable(path.rpartition("/")[2])[-40:], total=total)
                    if path in tasks:
                        bars.update(tasks[path], completed=done)
                    return
                count += 1
                if path in tasks:
                    bars.remove_task(tasks.pop(path))
                bars.update(whole, description=f"{count} files")

        yield say
