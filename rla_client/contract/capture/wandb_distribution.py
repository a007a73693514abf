"""Names of an installed wandb, for the module that stands in its place.

Accelerate, Lightning and others ask `importlib.metadata` for the installed package before they import it;
prime-rl imports `wandb_gql`, which wandb installs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution, DistributionFinder
    from typing import Any

_GQL = "wandb_gql"
VERSION = "0.31.0"  # of wandb, whose shape the module has
_METADATA = f"Metadata-Version: 2.1\nName: wandb\nVersion: {VERSION}\n"


def is_replaced() -> bool:
    """Whether rla-agent's module replaces wandb: what a library logs to wandb is in the run already."""
    return getattr(sys.modules.get("wandb"), "__name__", "") == "rla_client.integrations.wandb"


class WandbFinder:
    """Last finder in `sys.meta_path`, so that an installed wandb comes first.

    Args:
        replaces: returns whether the module replaces wandb now.
    """

    def __init__(self, replaces: Callable[[], bool]) -> None:
        self._replaces = replaces

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """That of `wandb_gql`."""
        del path, target
        if name != _GQL or not self._replaces():
            return None
        from importlib.util import spec_from_file_location  # noqa: PLC0415 - who asks has imported it

        beside = os.path.dirname(str(sys.modules["wandb"].__file__))
        return spec_from_file_location(name, os.path.join(beside, "gql.py"))

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """That of wandb, where it is asked for by name."""
        return [_distribution()] if context.name == "wandb" and self._replaces() else []


def _distribution() -> Distribution:
    from importlib.metadata import Distribution  # noqa: PLC0415 - who asks has imported it

    class WandbDistribution(Distribution):
        def read_text(self, filename: str) -> str | None:
            return _METADATA if filename == "METADATA" else None

        def locate_file(self, path: Any) -> Any:  # noqa: ANN401 - as declared there
            return path

    return WandbDistribution()


def install(replaces: Callable[[], bool]) -> None:
    """Give `importlib.metadata` the package for as long as the module stands in wandb's place."""
    sys.meta_path.append(WandbFinder(replaces))
