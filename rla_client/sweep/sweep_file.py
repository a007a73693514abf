"""Reader of sweep files.

    name: ppo-lr                    # default: the file's name
    command: python ppo.py --lr {lr} --seed {seed}      # or {args}: all of them as --name value
    # experiment: launcher.py:ppo   # instead: a wrapped experiment, or any function, called with them
    method: grid                    # or list, random, optuna
    parameters:
      lr: [1e-3, 3e-4]              # values; or one value
      clip: {uniform: [0.1, 0.3]}   # log_uniform, int, log_int; bounds included
      momentum: {values: [0.9, 0.99], when: {optimizer: sgd}}
      optimizer: [adam, sgd]
    # list: [{lr: 1e-3, clip: 0.1}, …]                  with method list
    trials: 20                      # of random and optuna
    seeds: 5                        # 0 to 4; or a list, or 1..5: each trial with each seed
    metric: {name: perf/return, goal: maximize}         # what optuna is told, and the table shows
    retries: 1                      # of a run that fails
    resources: {cpus: 1, memory: 2GiB, gpus: 0.5, parallel: 8}

`1e-3` is a number here, though YAML takes it for text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rla_client.config.rules import Choice, Number, Rule, Text, WrongValueError
from rla_client.config.section_reader import SectionReader
from rla_client.config.yaml_nodes import is_empty, node_of_file, shape
from rla_client.contract.errors import ConfigError
from rla_client.sweep.space import METHODS, Choices, Dimension, Kind, Parameters, Range, Space, Value
from rla_client.sweep.spec import SEED, Resources, Spec, TrialMetric
from rla_client.sweep.spec_values import check_text, command_words, plain_value, seed_list, size_bytes

if TYPE_CHECKING:
    import yaml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MAX_RETRIES = 1000
_VARIABLE = re.compile(r"[^=\0]+")
_PARAMETER = re.compile(r"[^\s{}\0]+")
_RANGES = {
    "uniform": (False, False),
    "log_uniform": (True, False),
    "int": (False, True),
    "log_int": (True, True),
}


def read_spec(path: Path, name: str | None = None) -> Spec:
    """Read a sweep file.

    Args:
        path: the file.
        name: default name of the sweep, if the file has none; None: the file's name.

    Raises:
        ConfigError: the file has faults; the message lists all of them.
    """
    if not path.exists():
        raise ConfigError(str(path), ["there is no such file; `rla sweep --help` describes the format"])
    node = node_of_file(path)
    if node is None:
        raise ConfigError(str(path), ["is empty; `rla sweep --help` describes the format"])
    reader = _Reader()
    found = reader.spec(node, name or path.stem)
    if reader.faults:
        faults = sorted(reader.faults, key=lambda fault: _line(fault[0]))
        raise ConfigError(str(path), [_fault_text(where, key, text) for where, key, text in faults])
    return found


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 0


def _fault_text(node: yaml.Node, key: str, text: str) -> str:
    line = f"line {_line(node)}: " if node.start_mark else ""
    return f"{line}{key.lstrip('.')}{' ' if key else ''}{text}"


_RESOURCES: dict[str, Rule] = {
    "cpus": Number(0.01, 4096),
    "memory": size_bytes,
    "gpus": Number(0, 64),
    "parallel": Number(1, 100_000, whole=True),
}
_METRIC: dict[str, Rule] = {
    "name": Text(),
    "goal": Choice(("maximize", "minimize")),
    "of": Choice(("last", "best", "mean")),
}
_SIMPLE: dict[str, Rule] = {
    "name": Text(),
    "command": command_words,
    "experiment": Text(),
    "arguments": Text(),
    "method": Choice(METHODS),
    "trials": Number(1, 1_000_000, whole=True),
    "seeds": seed_list,
    "retries": Number(0, MAX_RETRIES, whole=True),
    "random_seed": Number(0, 2**31, whole=True),
}
_SECTIONS = ("parameters", "list", "metric", "resources", "environment", "slurm", "ray")
_ADVICE = {
    "program": "is called command here: `command: python train.py {args}`",
    "runs": "is called trials here: choices of parameters; each runs once with each of the seeds",
    "seed": "is called seeds here: 5, or 1..5, or a list",
}


class _Reader(SectionReader):
    """Reads the sections of a sweep file."""

    def spec(self, root: yaml.Node, default_name: str) -> Spec:
        known = {key: key for key in (*_SIMPLE, *_SECTIONS)}
        nodes = self.mapping(root, "", known, _ADVICE)
        values = self._values({key: node for key, node in nodes.items() if key in _SIMPLE}, "", _SIMPLE)
        values.setdefault("name", re.sub(r"[^A-Za-z0-9_.-]+", "-", default_name).strip("-.") or "sweep")
        if not NAME.fullmatch(values["name"]):
            text = f"{values['name']!r} must be letters, digits, '_', '-' and '.'"
            self.faults.append((nodes.get("name", root), ".name", text))
        values["listed"] = self._listed(nodes.get("list"))
        values["space"] = self._space(nodes.get("parameters"), values["listed"])
        values["metric"] = self._metric(nodes.get("metric"))
        values["resources"] = Resources(**self._section(nodes.get("resources"), "resources", _RESOURCES))
        values["environment"] = self._environment(nodes.get("environment"))
        values["options"] = {
            engine: self._options(nodes[engine], engine) for engine in ("slurm", "ray") if engine in nodes
        }
        found = Spec(**values)
        faulty = {below.lstrip(".").partition(".")[0].partition("[")[0] for _, below, _ in self.faults}
        if not faulty & {"", "method"}:  # without a mapping or a method, the other rules are unknown
            self._check(root, nodes, found, faulty)
        return found

    def _check_parameter(self, node: yaml.Node, below: str, name: str) -> None:
        if not _PARAMETER.fullmatch(name):
            self.faults.append((node, below, f"{name!r} cannot be a parameter's name: no spaces and braces"))

    def _values(
        self, nodes: Mapping[str, yaml.Node], below: str, rules: Mapping[str, Rule]
    ) -> dict[str, Any]:
        read = {key: self.value(rules[key], node, f"{below}.{key}") for key, node in nodes.items()}
        return {key: value for key, value in read.items() if value is not None}

    def _entries(
        self, node: yaml.Node | None, below: str, known: dict[str, str] | None = None
    ) -> dict[str, yaml.Node]:
        """Entries of a mapping, which may be missing or empty."""
        return {} if node is None or is_empty(node) else self.mapping(node, below, known)

    def _section(self, node: yaml.Node | None, name: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
        return self._values(self._entries(node, f".{name}", {key: key for key in rules}), f".{name}", rules)

    def _metric(self, node: yaml.Node | None) -> TrialMetric | None:
        if node is None or is_empty(node):
            return None
        if shape(node) == "scalar":
            return TrialMetric(str(node.value))
        found = self._section(node, "metric", _METRIC)
        if "name" not in found:
            self.faults.append((node, ".metric.name", "is missing"))
            return None
        return TrialMetric(**found)

    def _environment(self, node: yaml.Node | None) -> dict[str, str]:
        found = {}
        for key, one in self._entries(node, ".environment").items():
            found[key] = str(self.value(Text(), one, f".environment.{key}") or "")
            try:
                check_text(found[key])
            except WrongValueError as error:
                self.faults.append((one, f".environment.{key}", str(error)))
            if not _VARIABLE.fullmatch(key):
                self.faults.append((one, ".environment", f"{key!r} cannot be a variable's name"))
        return found

    def _options(self, node: yaml.Node, engine: str) -> dict[str, Any]:
        nodes = self._entries(node, f".{engine}")
        return {key: self.value(plain_value, one, f".{engine}.{key}") for key, one in nodes.items()}

    def _space(self, node: yaml.Node | None, listed: Sequence[Parameters]) -> Space:
        if node is None or is_empty(node):
            return Space()
        found = []
        before = len(self.faults)
        for name, one in self.mapping(node, ".parameters", None).items():
            self._check_parameter(one, ".parameters", name)
            dimension = self._dimension(name, one, f".parameters.{name}")
            if dimension is not None:
                found.append(dimension)
        if len(self.faults) > before:
            return Space()
        try:
            return Space.of(found, listed)
        except ValueError as error:
            self.faults.append((node, ".parameters", str(error)))
            return Space()

    def _dimension(self, name: str, node: yaml.Node, below: str) -> Dimension | None:
        if shape(node) != "mapping":
            kind = self._listed_values(node, below)
            return None if kind is None else Dimension(name, kind)
        before = len(self.faults)
        keys = {key: key for key in ("value", "values", "when", *_RANGES)}
        nodes = self.mapping(node, below, keys)
        when = self._when(nodes.pop("when", None), below)
        if len(nodes) != 1:
            if nodes or len(self.faults) == before:
                text = f"must hold one of values, {', '.join(_RANGES)}; beside it only `when`"
                self.faults.append((node, below, text))
            return None
        ((word, inner),) = nodes.items()
        kind = self._range(word, inner, below) if word in _RANGES else self._listed_values(inner, below)
        return None if kind is None else Dimension(name, kind, when)

    def _listed_values(self, node: yaml.Node, below: str) -> Kind | None:
        before = len(self.faults)
        items = node.value if shape(node) == "sequence" else [node]
        if not items:
            self.faults.append((node, below, "has no values"))
        values: list[Value] = []
        for one in items:
            try:
                values.append(plain_value(one))
            except WrongValueError as error:
                self.faults.append((one, below, str(error)))
        if len({(type(one), one) for one in values}) < len(values):
            self.faults.append((node, below, "names a value twice"))
        return Choices(tuple(values)) if len(self.faults) == before else None

    def _range(self, word: str, node: yaml.Node, below: str) -> Kind | None:
        log, whole = _RANGES[word]
        try:
            bounds = [plain_value(one) for one in node.value] if shape(node) == "sequence" else []
        except WrongValueError:
            bounds = []
        kinds = int if whole else (int, float)
        fits = [isinstance(one, kinds) and not isinstance(one, bool) for one in bounds]
        if fits != [True, True]:
            wanted = "two whole numbers" if whole else "two numbers"
            self.faults.append((node, f"{below}.{word}", f"must be {wanted}: [smallest, largest]"))
            return None
        low, high = cast("tuple[float, float]", tuple(bounds))
        if not low < high or (log and low <= 0):
            above = ", both above 0" if log else ""
            self.faults.append((node, f"{below}.{word}", f"must be [smallest, largest]{above}"))
            return None
        return Range(low, high, log, whole)

    def _when(self, node: yaml.Node | None, below: str) -> dict[str, tuple[Value, ...]]:
        found = {}
        for name, one in self._entries(node, f"{below}.when").items():
            kind = self._listed_values(one, f"{below}.when.{name}")
            if isinstance(kind, Choices):
                found[name] = kind.values
        return found

    def _listed(self, node: yaml.Node | None) -> tuple[Parameters, ...]:
        if node is None or is_empty(node):
            return ()
        if shape(node) != "sequence":
            self.faults.append((node, ".list", "must be a list of trials, each with its parameters"))
            return ()
        found = []
        for number, one in enumerate(node.value, 1):
            below = f".list[{number}]"
            nodes = self.mapping(one, below, None)
            for key, value in nodes.items():
                self._check_parameter(value, below, key)
            found.append(
                {key: self.value(plain_value, value, f"{below}.{key}") for key, value in nodes.items()}
            )
        return tuple(found)

    def _check(self, root: yaml.Node, nodes: Mapping[str, yaml.Node], spec: Spec, faulty: set[str]) -> None:
        """Add faults of combinations of keys, except for keys that have faults of their own."""
        counts = spec.method in {"grid", "list"}
        listed = {name for one in spec.listed for name in one}
        ranges = ", ".join(spec.space.ranges)
        rules = (
            (not spec.command and not spec.experiment, "command",
             "is missing: what is to be run, or experiment: file.py:function"),
            (bool(spec.command and spec.experiment), "experiment", "and command cannot both be given"),
            (bool(spec.experiment) and ":" not in spec.experiment, "experiment",
             "must be file.py:function or module:function"),
            ("{name}" not in spec.arguments or "{value}" not in spec.arguments, "arguments",
             "must hold {name} and {value}, as in --{name}={value}"),
            (spec.method == "list" and not spec.listed, "list", "is missing: the trials of method list"),
            (spec.method != "list" and bool(spec.listed), "list", "has a meaning only with `method: list`"),
            (not counts and spec.trials is None, "trials",
             f"is missing: how many choices method {spec.method} makes"),
            (counts and spec.trials is not None, "trials",
             f"has no meaning with method {spec.method}, which tries each once"),
            (counts and bool(ranges), "parameters",
             f"{ranges}: a range cannot be tried whole; give values, or `method: random`"),
            (spec.method == "optuna" and spec.metric is None, "metric",
             "is missing: what optuna is to make better, as in {name: perf/return, goal: maximize}"),
            (spec.seeds is not None and SEED in {*spec.space.names, *listed}, "seeds",
             "and a parameter called seed cannot both be given"),
            (bool(listed & {*spec.space.names}), "list", "and parameters cannot both name a parameter"),
            (spec.resources.gpus > 1 and not spec.resources.gpus.is_integer(), "resources",
             "gpus must be a whole number, or a part of one below 1"),
        )  # fmt: skip
        self.faults += [
            (nodes.get(key, root), f".{key}", text)
            for wrong, key, text in rules
            if wrong and key not in faulty
        ]
