"""`wandb.config`, the hyper-parameters of the open run."""

from __future__ import annotations

import os
from typing import Any

from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import check_yaml
from rla_client.integrations.wandb.attribute_dict import AttributeDict
from rla_client.manager import exp_manager
from rla_client.run.parameters.config_objects import to_parameters


class Config(AttributeDict):
    """The run's hyper-parameters; changes are written at once."""

    def update(self, d: Any = None, allow_val_change: Any = None, **further: Any) -> None:  # type: ignore[override]
        """Set several values, from a mapping, a Namespace, a dataclass or a YAML file."""
        del allow_val_change
        super().update({**parameters_of(d), **further})

    update_locked = merge_locked = update

    def setdefaults(self, d: Any) -> None:
        """Set the values that do not exist yet."""
        self.update({key: value for key, value in parameters_of(d).items() if key not in self})

    def changed(self, values: dict[str, Any]) -> None:
        """Write new values."""
        if values and exp_manager.run is not None:
            exp_manager.add_hyper_param(values)

    def persist(self) -> None:
        """Do nothing, as changes are written at once."""

    as_dict = dict.copy


def parameters_of(config: Any) -> dict[str, Any]:
    """Hyper-parameters of an object that wandb accepts as config, including YAML files and absl's flags."""
    if isinstance(config, str | os.PathLike):
        import yaml  # noqa: PLC0415 - rarely needed

        text = read_small(config, links=True)
        check_yaml(text)
        found = yaml.safe_load(text) or {}
        return {
            key: entry["value"] if isinstance(entry, dict) and "value" in entry else entry
            for key, entry in found.items()
        }
    return to_parameters(config.flag_values_dict() if hasattr(config, "flag_values_dict") else config)
