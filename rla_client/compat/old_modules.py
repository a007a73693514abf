"""Modules with RLA's names, created when they are imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rla_client.compat.rla_names import INSTEAD, NAMES, WHOLE


class _OldModule(ModuleType):
    """A module with a name of the original, which looks its attributes up in rla_client at first use."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any public name
        module = self.__name__
        if f"{module}.{name}" in known_modules():
            return importlib.import_module(f"{module}.{name}")
        home, attribute = WHOLE.get(module, ""), name
        if not home and name in NAMES.get(module, {}):
            home, attribute = NAMES[module][name]
        if not home or not hasattr(importlib.import_module(home), attribute):
            instead = INSTEAD.get(module, {})
            use = "" if name.startswith("_") else instead.get(name) or instead.get("", "")
            if use:  # `from … import …` would hide the text of an AttributeError
                raise ImportError(f"rla_client does not offer {module}.{name}: {use}", name=module)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), attribute)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        whole = WHOLE.get(self.__name__)
        return dir(importlib.import_module(whole)) if whole else sorted(NAMES.get(self.__name__, {}))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates the old modules when they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a module of the original, None for any other."""
        del path, target
        if fullname not in known_modules():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A module that looks its attributes up."""
        module = _OldModule(spec.name, f"{spec.name} of the original RLA, served by rla_client.")
        home = WHOLE.get(spec.name)
        names = dir(importlib.import_module(home)) if home else list(NAMES.get(spec.name, {}))
        module.__dict__["__all__"] = [name for name in names if not name.startswith("_")]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, as the module has no code."""


def known_modules() -> frozenset[str]:
    """Modules of the original that can be imported; in some, names only raise errors with alternatives."""
    return frozenset({*WHOLE, *NAMES, *INSTEAD})


def install() -> None:
    """Provide the original's modules in this process from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in [name for name in sys.modules if name == "RLA" or name.startswith("RLA.")]:
        if not isinstance(sys.modules[name], _OldModule):
            del sys.modules[name]
