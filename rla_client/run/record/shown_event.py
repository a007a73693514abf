"""TensorBoard event without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rla_client.run.record.run_logger import Logger


def shown_event(event: Any, logger: Logger) -> bytes:  # noqa: ANN401 - a message of one of two libraries
    """The event's bytes, with the run's secrets hidden in its texts."""
    content: bytes = event.SerializeToString()
    values = event.summary.value if event.HasField("summary") else ()
    if logger.secrets is None or not any(one.metadata.plugin_data.plugin_name == "text" for one in values):
        return content
    copy = type(event).FromString(content)
    for value in copy.summary.value:
        for number, text in enumerate(value.tensor.string_val):
            value.tensor.string_val[number] = logger.shown(text.decode("utf-8", "replace")).encode()
    return bytes(copy.SerializeToString())
