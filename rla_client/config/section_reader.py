"""Reader of one section of a configuration, by the rules of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from rla_client.config.rules import Rule, WrongValueError, near
from rla_client.config.yaml_nodes import is_empty, is_scalar, quote, shape

if TYPE_CHECKING:
    import yaml


Fault: TypeAlias = "tuple[yaml.Node, str, str]"
"""The node, its key with a dot before each part, and the fault."""


class WrongValuesError(Exception):
    """Several faults below one key."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


class SectionReader:
    """Reads keys and values, and collects their faults in `faults`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def mapping(
        self,
        node: yaml.Node,
        below: str,
        known: Mapping[str, str] | None,
        advice: Mapping[str, str] | None = None,
    ) -> dict[str, yaml.Node]:
        """The value nodes by key; unknown and repeated keys are faults.

        Args:
            node: of the section.
            below: key of the section, with a dot before each part.
            known: key → the setting that it sets; None: any key is known.
            advice: unknown key → text of its fault.
        """
        if shape(node) != "mapping":
            self.faults.append((node, below, f"must hold keys and values, not {quote(node)}"))
            return {}
        try:
            pairs = _entries(cast("yaml.MappingNode", node))
        except WrongValueError as error:
            self.faults.append((node, below, str(error)))
            return {}
        found: dict[str, yaml.Node] = {}
        given: set[str] = set()
        for key_node, value in pairs:
            if not is_scalar(key_node):
                self.faults.append((key_node, below, f"a key must be a name, not {quote(key_node)}"))
                continue
            key = str(key_node.value)
            sets = key if known is None else known.get(key)
            if sets is None:
                text = (advice or {}).get(key) or f"unknown key{near(key_node, tuple(known or ()))}"
                self.faults.append((key_node, f"{below}.{key}", text))
            elif sets in given:
                self.faults.append((key_node, f"{below}.{key}", "is given twice"))
            else:
                found[key] = value
                given |= set() if is_empty(value) else {sets}
        return found

    def value(self, rule: Rule, node: yaml.Node, below: str) -> Any:  # noqa: ANN401 - the rule knows
        """The value of a node, read by a rule; None if the node is empty or faulty."""
        if is_empty(node):
            return None
        try:
            return rule(node)
        except WrongValueError as error:
            self.faults.append((node, below, str(error)))
        except WrongValuesError as error:
            self.faults += [(where, below + key, text) for where, key, text in error.faults]
        return None


def _entries(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Key and value nodes of a mapping. `<<` merges are resolved; the mapping's own keys win."""
    import yaml  # noqa: PLC0415 - loaded already: there is a node

    if not any(key.tag.endswith(":merge") for key, _ in node.value):
        return list(node.value)
    try:
        yaml.constructor.SafeConstructor().flatten_mapping(node)
    except yaml.YAMLError as error:
        raise WrongValueError(f"has a `<<` that cannot be merged: {error}") from error
    return list({str(key.value): (key, value) for key, value in node.value}.values())
