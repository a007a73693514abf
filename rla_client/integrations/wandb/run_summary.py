"""`wandb.summary`, the summary of the open run."""

from __future__ import annotations

import json
from typing import Any

from rla_client.contract.layout import LOG
from rla_client.integrations.wandb.attribute_dict import AttributeDict
from rla_client.manager import exp_manager
from rla_client.stream.param_values import plain_hyper_param

SUMMARY_FILE = "summary.json"


class _Below(dict[str, Any]):
    """A dict in which `["acc"]["max"]` reads and sets `["acc.max"]`, as in wandb."""

    def __missing__(self, key: str) -> Any:
        below = {name: value for name, value in self.items() if name.startswith(f"{key}.")}
        if not below:
            raise KeyError(key)
        found = _Part({name[len(key) + 1 :]: value for name, value in below.items()})
        found.above, found.name = self, key
        return found


class _Part(_Below):
    above: _Below
    name: str

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.above[f"{self.name}.{key}"] = value


class Summary(AttributeDict, _Below):
    """The last value of each metric or its `define_metric` summary, and the script's own values.

    `summary.json` in the log folder is written when the script sets a value and when the run ends.
    """

    def changed(self, values: dict[str, Any]) -> None:
        """Write the file."""
        del values
        if exp_manager.run is not None:
            text = json.dumps(plain_hyper_param(dict(self)), indent=1, default=str)
            exp_manager.run.file(LOG, SUMMARY_FILE, text.encode("utf-8", "backslashreplace"))
