"""Alert rule with its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from rla_client.config.alerts import MESSAGE, METRICS, AlertRule


@dataclass(frozen=True, slots=True)
class ConfiguredRule:
    """A rule with its configuration, and an id that is stable while the rule is unchanged."""

    name: str
    config: str
    rule: AlertRule

    @property
    def of_rows(self) -> bool:
        """Whether it is about rows or messages of a stream."""
        return self.rule.when[0] in {*METRICS, MESSAGE}
