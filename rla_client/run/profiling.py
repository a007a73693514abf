"""The part of exp_manager that measures: times, frames per hour, large variables."""

from __future__ import annotations

import time

from rla_client.run.current import get_current, info
from rla_client.run.trackers import print_large_memory_variable, time_record, time_record_end

SECONDS_PER_HOUR = 3600.0
LARGE_MEMORY_TAG = "large_memory"


class Measuring:
    """RLA's measuring methods; `ExpManager` has them."""

    def __init__(self) -> None:
        super().__init__()
        self.last_record_fph_time: float | None = None

    def time_record(self, name: str) -> None:
        """Begin to measure `name`; several may be measured at once.

        Raises:
            ArgumentError: it is being measured.
        """
        time_record(name)

    def time_record_end(self, name: str) -> float:
        """Record the seconds since `time_record(name)` as `time_used/<name>` and return them.

        Raises:
            ArgumentError: it is not being measured.
        """
        return time_record_end(name)

    def update_fph(self, cum_epochs: float) -> None:
        """Record epochs per hour since the first call as `fph` and write the row.

        Args:
            cum_epochs: epochs done so far.
        """
        now = time.monotonic()
        if self.last_record_fph_time is None:
            self.last_record_fph_time = now
            return
        hours = (now - self.last_record_fph_time) / SECONDS_PER_HOUR
        get_current().record("fph", cum_epochs / hours if hours > 0 else float("inf"))
        get_current().dump()

    def print_large_memory_variable(self) -> dict[str, str]:
        """Log the caller's largest variables (over 1 MiB, with what they hold): name → size.

        They also become the text `large_memory` in TensorBoard, where that is an output.
        """
        return tell_large_memory_variables(depth=3)


def tell_large_memory_variables(depth: int) -> dict[str, str]:
    """See `Measuring.print_large_memory_variable`; `depth` as in `trackers.print_large_memory_variable`."""
    told = print_large_memory_variable(info, depth=depth)
    current = get_current()
    if told and "tensorboard" in current.sinks:
        table = "".join(f"| {name} | {size} |\n" for name, size in told.items())
        from rla_client.run.tensorboard import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import

        tbx_writer(current).add_text(LARGE_MEMORY_TAG, f"| variable | size |\n| --- | --- |\n{table}")
    return told
