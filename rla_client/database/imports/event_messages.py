"""Protobuf messages of TensorBoard.

They come from tensorboardX. Its `__init__` imports PyTorch where that is installed, which takes up to 20 s
and is not needed here. Therefore its modules are imported without running that `__init__`, and then removed
from `sys.modules`, so that a later import of tensorboardX is complete.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

from rla_client.contract.errors import extra

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

_PACKAGE = "tensorboardX"


@cache
def event_messages() -> tuple[type[Event], type[HParamsPluginData]]:
    """Message classes of an event, and of the data of TensorBoard's plugin for hyper-parameters.

    Raises:
        MissingExtraError: tensorboardX is not installed.
    """
    with extra("tensorboard", "reading event files"):
        bare = _PACKAGE not in sys.modules and "torch" not in sys.modules
        spec = find_spec(_PACKAGE) if bare else None
        if spec is None:
            return _classes()
        sys.modules[_PACKAGE] = module_from_spec(spec)
        try:
            return _classes()
        finally:
            for name in [one for one in sys.modules if one.partition(".")[0] == _PACKAGE]:
                del sys.modules[name]


def _classes() -> tuple[type[Event], type[HParamsPluginData]]:
    event, hparams = (
        import_module(f"{_PACKAGE}.proto.{name}") for name in ("event_pb2", "plugin_hparams_pb2")
    )
    return event.Event, hparams.HParamsPluginData
