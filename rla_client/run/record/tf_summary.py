"""Summary messages of TensorFlow or any other protobuf build."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.run.record.run_logger import Logger
from rla_client.stream.summary_scalars import summary_scalars

with extra("tensorboard", "SummaryWriter"):
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata


def send_tf_summary(current: Logger, summary: object) -> None:
    """Send a Summary as an event; its scalars become values of the next row.

    Raises:
        ArgumentError: not a Summary.
    """
    now, step = time.time(), int(current.clock.get_time())
    parsed = parse_summary(summary)
    for tag, value in list(summary_scalars(parsed)):
        current.record(tag, value)
    event = Event(wall_time=now, step=step, summary=parsed)
    current.event(event.SerializeToString(), now, step)


def table_summary(content: Mapping[Any, Any], name: str) -> bytes:
    """A serialised Summary that TensorBoard shows as a table of text: one row for each entry."""
    from tensorboardX.proto.tensor_pb2 import TensorProto  # noqa: PLC0415 - rarely needed
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto  # noqa: PLC0415

    cells = [str(cell).encode("utf-8", "backslashreplace") for pair in content.items() for cell in pair]
    sizes = [TensorShapeProto.Dim(size=size) for size in (len(content), 2)]
    tensor = TensorProto(dtype="DT_STRING", string_val=cells, tensor_shape=TensorShapeProto(dim=sizes))
    text = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    data: bytes = Summary(value=[Summary.Value(tag=name, metadata=text, tensor=tensor)]).SerializeToString()
    return data


def parse_summary(summary: object) -> Summary:
    """A Summary of any protobuf build, or its bytes, as one of tensorboardX.

    Raises:
        ArgumentError: it is not a Summary.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    if hasattr(summary, "numpy"):
        summary = summary.numpy()  # tensorflow's eager summaries are text tensors
    data = summary.SerializeToString() if hasattr(summary, "SerializeToString") else summary
    if not isinstance(data, bytes):
        raise ArgumentError(f"not a Summary object or its bytes: {type(summary).__name__}")
    try:
        return Summary.FromString(data)
    except DecodeError as error:
        raise ArgumentError(f"these bytes are no Summary: {error}") from error
