"""A command without pydantic, where nothing has to be checked.

Typer 0.29 converts the value of every parameter through pydantic, given or not, and importing
that takes 60 ms: a third of what `rla show` has. Text is text, digits a number and a plain path
a path; everything else, and whatever is wrong, still goes to typer. This reaches into typer; with
a version that looks different inside, nothing is changed, and a command only starts later.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATH_CHECKS = {
    "exists": False,
    "file_okay": True,
    "dir_okay": True,
    "writable": False,
    "readable": True,
    "resolve_path": False,
    "path_type": None,
}  # typer's options of a path, with the values that check nothing


def spare_pydantic() -> None:
    """Let typer convert text, digits and plain paths by itself, for the life of this process."""
    try:
        from typer import core
        from typer._coercion import RuntimeParam

        thorough = core.build_runtime_param  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        return

    @dataclass(frozen=True)
    class Quick(RuntimeParam):
        """Converts what it can; else the thorough one does."""

        descriptor: Any

        def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
            found = _plain(value, self.annotation, self.parameter_info)
            if found is None:
                found = thorough(self.descriptor)._coerce_value(value, param=param, ctx=ctx)  # noqa: SLF001
            return found

    def build(descriptor: Any) -> Any:  # noqa: ANN401
        if descriptor.file_annotation is not None:
            return thorough(descriptor)
        return Quick(
            parameter_info=descriptor.parameter_info, annotation=descriptor.annotation, descriptor=descriptor
        )

    core.build_runtime_param = build  # type: ignore[attr-defined]


def _plain(value: object, kind: object, info: Any) -> Any:  # noqa: ANN401 - typer's ParameterInfo
    """The value as its kind, None where typer has to look at it."""
    if info.parser is not None:
        return None
    if kind == list[str] and isinstance(value, list | tuple):
        return list(value) if all(isinstance(item, str) for item in value) else None
    if not isinstance(value, str):
        return None
    if kind is int and value.isdecimal():
        low, high = info.min, info.max
        inside = (low is None or int(value) >= low) and (high is None or int(value) <= high)
        return int(value) if inside else None
    if kind is Path and all(getattr(info, name, usual) == usual for name, usual in _PATH_CHECKS.items()):
        return Path(value)
    return value if kind is str else None
