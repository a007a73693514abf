"""The largest variables of the training script, told as RLA's manager tells them."""

from __future__ import annotations

from rla_client.run.current import get_current, info
from rla_client.run.trackers import print_large_memory_variable

LARGE_MEMORY_TAG = "large_memory"


def tell_large_memory_variables(depth: int) -> dict[str, str]:
    """Log the largest variables that a caller sees (over 1 MiB, with what they hold): name → size.

    They also become the text `large_memory` in TensorBoard, where that is an output.

    Args:
        depth: whose variables: 2 for those of the caller, 3 for those of its caller.
    """
    told = print_large_memory_variable(info, depth=depth)
    current = get_current()
    if told and "tensorboard" in current.sinks:
        table = "".join(f"| {name} | {size} |\n" for name, size in told.items())
        from rla_client.run.tensorboard import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import

        tbx_writer(current).add_text(LARGE_MEMORY_TAG, f"| variable | size |\n| --- | --- |\n{table}")
    return told
