"""Hooks of stable-baselines3's loggers."""

from __future__ import annotations

import weakref

from . import recorder, state
from .state import Part, thread
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_models: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # logger → reference to its model


def hook(module: ModuleType, part: Part) -> None:
    """Watch the loggers, and which model has which."""
    if module.__name__.endswith("logger"):
        state.adapted.add("stable_baselines3")
        replace(module.Logger, "dump", _dump_maker(part))
    else:
        replace(module.BaseAlgorithm, "_setup_learn", observed(part, _learns))


def _learns(_: object, model: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    _models[model.logger] = weakref.ref(model)


def _dump_maker(part: Part) -> Any:
    def make(original: Any) -> Any:
        def dump(self: Any, step: Any = 0, *args: Any, **kwargs: Any) -> Any:
            if thread.inside or not part.on:
                return original(self, step, *args, **kwargs)
            values, excluded = (
                dict(self.name_to_value),
                dict(self.name_to_excluded),
            )  # the original empties them
            thread.inside = True
            try:
                result = original(self, step, *args, **kwargs)
                try:
                    session = recorder.session() if values else None
                    if session is not None:
                        model = _models.get(self)
                        session.models.write(part, None if model is None else model(), values, excluded, step)
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
            finally:
                thread.inside = False
            return result

        return dump

    return make
