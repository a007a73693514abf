"""Replacement of a wandb that is not installed.

The program's own imports get the module of wandb's shape.

Own files that import it inside of `try` can do without, and libraries look for it in several ways: they find
none, unless RLA_CAPTURE says `replace`. A folder called `wandb`, which wandb itself leaves, is no package.
"""

from __future__ import annotations

import os
import sys

from . import recorder, state
from .origin import is_own
from .wrapping import guarded

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any

REPLACE = "replace"
_PASSED = tuple(f"hooks{os.sep}{name}.py" for name in ("finder", "wandb_replacement", "wrapping"))


def spec_for(name: str, found: Any) -> Any:
    """What the import of `wandb` finds.

    Args:
        name: `wandb`.
        found: what others found.
    """
    installed = found is not None and (found.origin is not None or not found.submodule_search_locations)
    if installed or not state.part("wandb").on:
        return found
    if REPLACE not in state.chosen:
        importer = _importer()
        if importer is None:  # `importlib.util.find_spec` asks
            return found
        if not is_own(importer.f_code.co_filename) or _inside_try(
            importer.f_code.co_filename, importer.f_lineno
        ):
            return found
    from importlib.machinery import ModuleSpec

    loader: Any = _Loader()
    return ModuleSpec(name, loader, origin="rla_client.integrations.wandb")


class _Loader:
    """Puts the module of wandb's shape into `sys.modules`."""

    def create_module(self, spec: Any) -> None:
        """The usual one, which gives way."""

    def exec_module(self, module: ModuleType) -> None:
        """Import ours; where that fails, there is none, as without us.

        Raises:
            ModuleNotFoundError: it failed.
        """
        ours = guarded(state.part("wandb"), _replacement)
        if ours is None:
            raise ModuleNotFoundError(f"No module named {module.__name__!r}", name=module.__name__)
        sys.modules[module.__name__] = ours


def _replacement() -> ModuleType:
    from rla_client.capture.wandb_module import replacement

    return replacement(_adopt, lambda: "tensorboard" in state.chosen)


def _adopt() -> None:
    """A run of the replacement was opened."""
    part = state.part("wandb")

    def adopt() -> None:
        session = recorder.session()
        if session is not None:
            session.adopt(part)

    guarded(part, adopt)


def _importer() -> FrameType | None:
    """The frame with the import statement; None where no import is at work."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - CPython's
    imports = False
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == "<frozen importlib._bootstrap>":
            imports = imports or name == "_find_and_load"
        elif not file.endswith(_PASSED):
            break
        frame = frame.f_back
    if not imports or frame is None:
        return None
    if frame.f_code.co_name == "import_module" and frame.f_code.co_filename.endswith(
        f"importlib{os.sep}__init__.py"
    ):
        return frame.f_back
    return frame


def _inside_try(file: str, line: int) -> bool:
    """Whether a line of a file is in the body of a `try`."""
    import ast

    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read(), file)
    except (OSError, SyntaxError, ValueError):
        return False
    tries: list[Any] = [node for node in ast.walk(tree) if type(node).__name__ in {"Try", "TryStar"}]
    return any(node.body[0].lineno <= line <= node.body[-1].end_lineno for node in tries)
