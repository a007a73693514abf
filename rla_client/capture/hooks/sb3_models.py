"""Hooks of stable-baselines3's loggers."""

from __future__ import annotations

import weakref

from . import recorder, state
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_models: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # logger → weak ref of its model


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the loggers, and note the model of each."""
    if module.__name__.endswith("logger"):
        state.adapted.add("stable_baselines3")

        def see(
            dumped: tuple[dict[str, Any], dict[str, Any]],
            logger: Any,
            step: Any = 0,
            *args: Any,
            **kwargs: Any,
        ) -> None:
            del args, kwargs
            session = recorder.session()
            if session is not None:
                model = _models.get(logger)
                session.models.write(part, None if model is None else model(), *dumped, step)

        replace(module.Logger, "dump", observed(part, see, _to_dump))
    else:
        replace(module.BaseAlgorithm, "_setup_learn", observed(part, _learns))


def _learns(_: object, model: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    _models[model.logger] = weakref.ref(model)


def _to_dump(logger: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Copies of the values and of their exclusions, both of which `dump` clears."""
    del args, kwargs
    values = dict(logger.name_to_value)
    return (values, dict(logger.name_to_excluded)) if values else None
