"""Replacement of a wandb that is not installed.

Imports of `wandb` in the program's own files get our wandb module. Own files that import it inside `try` work
without it, and libraries look for it in several ways: these find no wandb, unless RLA_CAPTURE has `replace`.
A folder named `wandb`, which wandb creates for its runs, is not a package.
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
    """The spec for the import of `wandb`.

    Args:
        name: `wandb`.
        found: the spec of the other finders.
    """
    installed = found is not None and (found.origin is not None or not found.submodule_search_locations)
    if installed or not state.part("wandb").on:
        return found
    if REPLACE not in state.chosen:
        importer = _importer()
        if importer is None:  # the caller is `importlib.util.find_spec`
            return found
        if not is_own(importer.f_code.co_filename) or _inside_try(
            importer.f_code.co_filename, importer.f_lineno
        ):
            return found
    from importlib.machinery import ModuleSpec

    loader: Any = _Loader()
    return ModuleSpec(name, loader, origin="rla_client.integrations.wandb")


class _Loader:
    """Puts our wandb module into `sys.modules`."""

    def create_module(self, spec: Any) -> None:
        """Let importlib create a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Import our module.

        Raises:
            ModuleNotFoundError: the import failed, so the program finds no wandb.
        """
        ours = guarded(state.part("wandb"), _replacement)
        if ours is None:
            raise ModuleNotFoundError(f"No module named {module.__name__!r}", name=module.__name__)
        sys.modules[module.__name__] = ours


def _replacement() -> ModuleType:
    from rla_client.capture.wandb_module import replacement

    return replacement(_adopt, lambda: "tensorboard" in state.chosen)


def _adopt() -> None:
    """Tell the session that the replacement opened a run."""
    part = state.part("wandb")

    def adopt() -> None:
        session = recorder.session()
        if session is not None:
            session.adopt(part)

    guarded(part, adopt)


def _importer() -> FrameType | None:
    """The frame with the import statement; None without an import."""
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
