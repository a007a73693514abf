"""What goes to TensorBoard beside rows: tensorboardX's writer, TensorFlow's summaries."""

from __future__ import annotations

import os
import time
from typing import Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.media.summary_writer import (
    AgentSummaryWriter,
    ScalarRows,
    event_of_summary,
    scalars_of_summary,
)
from rla_client.run.recording import Logger
from rla_client.stream.clock import time_step_holder

with extra("tensorboard", "SummaryWriter"):
    from tensorboardX.proto.event_pb2 import Event


def tbx_writer(current: Logger) -> AgentSummaryWriter:
    """The logger's tensorboardX `SummaryWriter`, made at the first call.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs.
    """
    if "tensorboard" not in current.sinks:
        message = "get_tbx_writer() needs tensorboard among the outputs; see LOG_USED in rla_config.yaml"
        raise ArgumentError(message)
    if current.tbx_writer is None:
        current.tbx_writer = AgentSummaryWriter(**writer_arguments(current))
    writer: AgentSummaryWriter = current.tbx_writer
    return writer


def scalar_rows(current: Logger) -> ScalarRows | None:
    """What makes rows of values that come one by one; one for each run. None without CSV and JSON."""
    if current.scalar_rows is None and current.sinks & {"csv", "json"}:
        current.scalar_rows = ScalarRows(current)
    rows: ScalarRows | None = current.scalar_rows
    return rows


def writer_arguments(current: Logger) -> dict[str, Any]:
    """What makes an `AgentSummaryWriter` write into the run of `current`; all of one run share its rows."""
    return {
        "emit": current.event,
        "logdir": os.path.join(current.folder or ".", "tb", "events"),
        "get_step": time_step_holder.get_time,
        "shown": lambda params: current.secrets.parameters(params) if current.secrets else params,
        "rows": scalar_rows(current),
        "parameters": current.take_parameters,
    }


def send_tf_summary(current: Logger, summary: object) -> None:
    """Send a Summary as an event; its scalars become values of the next row.

    Raises:
        ArgumentError: not a Summary.
    """
    now, step = time.time(), int(time_step_holder.get_time())
    for tag, value in scalars_of_summary(summary):
        current.record(tag, value)
    current.event(event_of_summary(summary, now, step), now, step)


def send_graph(current: Logger, source: object, *args: object, **kwargs: object) -> None:
    """Send the graph of a tensorflow session; of anything else what tensorboardX's `add_graph` makes.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs.
    """
    writer = tbx_writer(current)
    graph = getattr(source, "graph", source)
    if not hasattr(graph, "as_graph_def"):
        writer.add_graph(source, *args, **kwargs)
        return
    now, step = time.time(), int(time_step_holder.get_time())
    event = Event(wall_time=now, step=step, graph_def=graph.as_graph_def().SerializeToString())
    current.event(event.SerializeToString(), now, step)
