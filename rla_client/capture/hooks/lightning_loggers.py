"""Hook of Lightning's Trainer, for its metrics."""

from __future__ import annotations

from ...contract.capture.wandb_distribution import is_replaced
from . import recorder, seen_parameters, state
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the connector between a trainer and its loggers."""
    state.adapted.update({"lightning", "pytorch_lightning", "lightning_fabric"})

    def see(_: object, connector: Any, metrics: Any, step: Any = None) -> None:
        trainer = connector.trainer
        if not metrics or not trainer.is_global_zero:
            return
        if is_replaced() and any(type(logger).__name__ == "WandbLogger" for logger in trainer.loggers):
            return
        parameters = getattr(trainer.lightning_module, "hparams", None)
        if parameters:
            seen_parameters.add(seen_parameters.CONFIG, "lightning", parameters)
        if step is None:
            step = metrics.get("step", trainer.fit_loop.epoch_loop._batches_that_stepped)  # noqa: SLF001 - as Lightning counts
        recorder.row(part, {name: value for name, value in metrics.items() if name != "step"}, step)

    replace(module._LoggerConnector, "log_metrics", observed(part, see))  # noqa: SLF001 - there is no public hook
