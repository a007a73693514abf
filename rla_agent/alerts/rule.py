"""Alert rule with its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from rla_client.config.alerts import MESSAGE, METRICS, AlertRule


@dataclass(frozen=True, slots=True)
class ConfiguredRule:
    """A rule, the configuration that it stands in, and an id that it has as long as it stays as it is."""

    name: str
    config: str
    rule: AlertRule

    @property
    def of_rows(self) -> bool:
        """Whether it is about what a stream brings."""
        return self.rule.when[0] in {*METRICS, MESSAGE}
