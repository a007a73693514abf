"""A command without pydantic, where nothing has to be checked.

Typer 0.29 converts the value of every parameter through pydantic, given or not, and importing
that takes 60 ms: a third of what `rla show` has. Text is text and a plain path a path; numbers
with limits and paths that must exist still go to typer. This reaches into typer; with a version
that looks different inside, nothing is changed, and a command only starts later.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATH_CHECKS = ("exists", "file_okay", "dir_okay", "writable", "readable", "resolve_path", "path_type")


def spare_pydantic() -> None:
    """Let typer convert text and plain paths by itself, for the life of this process."""
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
            kind = self.annotation
            if self.parameter_info.parser is not None:
                return thorough(self.descriptor)._coerce_value(value, param=param, ctx=ctx)  # noqa: SLF001
            if kind is str and isinstance(value, str):
                return value
            if kind == list[str] and all(isinstance(item, str) for item in value):
                return list(value)
            if kind is Path and isinstance(value, str) and not _has_checks(self.parameter_info):
                return Path(value)
            return thorough(self.descriptor)._coerce_value(value, param=param, ctx=ctx)  # noqa: SLF001

    def build(descriptor: Any) -> Any:  # noqa: ANN401
        if descriptor.file_annotation is not None:
            return thorough(descriptor)
        return Quick(
            parameter_info=descriptor.parameter_info, annotation=descriptor.annotation, descriptor=descriptor
        )

    core.build_runtime_param = build  # type: ignore[attr-defined]


def _has_checks(info: Any) -> bool:  # noqa: ANN401
    wanted = {"file_okay": True, "dir_okay": True, "readable": True}  # typer's defaults
    return any(getattr(info, name, None) not in {None, wanted.get(name, False)} for name in _PATH_CHECKS)
