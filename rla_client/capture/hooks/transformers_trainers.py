"""Hook of Hugging Face's Trainer.

The Trainer's events also go to our callback, which is not in the Trainer's list of callbacks.
"""

from __future__ import annotations

import weakref

from ...contract.capture.wandb_distribution import is_replaced
from . import recorder, state
from .state import CapturePart
from .wrapping import followed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_callbacks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # handler → callback
_begun: weakref.WeakKeyDictionary[Any, Any] = (
    weakref.WeakKeyDictionary()
)  # handler → arguments of on_train_begin
_WANTED = frozenset({"on_train_begin", "on_step_end", "on_log", "on_save", "on_train_end"})


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the events of each trainer."""
    state.adapted.add("transformers")

    def see(_: object, handler: Any, event: Any, *args: Any, **kwargs: Any) -> None:
        if event in _WANTED:
            _see(part, handler, event, args, kwargs)

    replace(
        module.CallbackHandler, "call_event", followed(part, see)
    )  # the program's callbacks may log in it


def _see(part: CapturePart, handler: Any, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if event == "on_train_begin":
        _begun[handler] = args
        return
    callback = _callbacks.get(handler)
    if callback is None:
        if event != "on_log" or not args[1].is_world_process_zero:
            return
        session = recorder.session()
        callback = None if session is None else session.trainer_callback()
        if callback is None:
            return
        _callbacks[handler] = callback
    if handler in _begun:
        callback.on_train_begin(*_begun.pop(handler), model=getattr(handler, "model", None))
    getattr(callback, event)(*args, model=getattr(handler, "model", None), **kwargs)
    if event == "on_log" and not (is_replaced() and "wandb" in (args[0].report_to or ())):
        part.count("values", len(kwargs.get("logs") or ()))
