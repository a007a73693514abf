"""Scalars in a Summary of TensorBoard."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto


def summary_scalars(summary: Summary, plugins: dict[str, str] | None = None) -> Iterator[tuple[str, float]]:
    """Tag and number of each scalar of a Summary, as `simple_value` or as TF 2's tensors.

    Args:
        summary: a Summary message.
        plugins: tag to plugin name, kept between calls: metadata may come with a tag's first value only.
    """
    known = {} if plugins is None else plugins
    for value in summary.value:
        kind = value.WhichOneof("value")
        plugin = known.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
        if kind == "simple_value":
            yield value.tag, value.simple_value
        elif kind == "tensor" and plugin == "scalars":
            number = _tensor_number(value.tensor)
            if number is not None:
                yield value.tag, number


def _tensor_number(tensor: TensorProto) -> float | None:
    """The number in a tensor of one element; None for other tensors."""
    formats = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
    if tensor.tensor_content:
        form = formats.get(tensor.dtype)
        if form is None or len(tensor.tensor_content) != struct.calcsize(form):
            return None
        return float(struct.unpack(form, tensor.tensor_content)[0])
    for values in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(values) == 1:
            return float(values[0])
    return None
