"""Hooks of click or typer, for the parameters of the program's own commands."""

from __future__ import annotations

from . import seen_parameters
from .origin import is_own
from .state import CapturePart
from .wrapping import preceded, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch commands."""
    replace(module.Command, "invoke", preceded(part, _see))


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
    seen_parameters.add(seen_parameters.PARSER, "click", dict(ctx.params), tuple(given))
