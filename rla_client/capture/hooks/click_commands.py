"""Hooks of click or typer, for the parameters of the program's own commands."""

from __future__ import annotations

from . import gathered
from .origin import is_own
from .state import Part
from .wrapping import replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: Part) -> None:
    """Watch commands."""

    def make(original: Any) -> Any:
        def invoke(self: Any, ctx: Any) -> Any:
            if part.on:
                try:
                    _see(self, ctx)
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
            return original(self, ctx)  # the program runs in it

        return invoke

    replace(module.Command, "invoke", make)


def _see(command: Any, ctx: Any) -> None:
    function = command.callback
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None or not ctx.params or not is_own(code.co_filename):
        return
    given = [
        name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    gathered.add(gathered.PARSER, "click", dict(ctx.params), tuple(given))
