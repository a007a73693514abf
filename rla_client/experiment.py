"""`rla_client.launcher` under its earlier name: scripts import it, and snapshots name its modules.

The modules below it forward each name to the module of today, so classes are the same and state exists once.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client import launcher
from rla_client.launcher import __all__ as __all__  # noqa: PLC0414 - the same public names

if TYPE_CHECKING:
    from rla_client.launcher import *  # noqa: F403

__path__: list[str] = []


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    return getattr(launcher, name)


class _Forwarding(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any name of the module
        module = importlib.import_module(launcher.__name__ + self.__name__.removeprefix(__name__))
        return getattr(module, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - as in the base class
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """For whatever is named below this module.

        Nothing is imported here: the lock of all imports is held, and another thread that waits for it may
        be in the middle of what would be imported.
        """
        if not fullname.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty module that looks its names up."""
        home = launcher.__name__ + spec.name.removeprefix(__name__)
        try:
            importlib.import_module(home)  # not looked for: what has become part of another has no file
        except ModuleNotFoundError as error:
            if error.name != home:  # it is there, and lacks something
                raise
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from error
        return _Forwarding(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.insert(0, _Finder())
