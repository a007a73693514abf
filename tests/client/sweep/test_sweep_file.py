"""The file of a sweep: what it may say, and what is said of its faults."""
# ruff: noqa: E501 - a message reads best in one line

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.sweep_lab import make_spec

from rla_client.contract.errors import ConfigError
from rla_client.sweep.space import Choices, Range
from rla_client.sweep.spec import Resources, Spec, TrialMetric
from rla_client.sweep.spec_values import MAX_SEEDS
from rla_client.sweep.sweep_file import read_spec

RUN = "command: python train.py\n"


def read(tmp_path: Path, text: str | bytes, name: str = "lr.yaml") -> Spec:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_spec(path)


def faults(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return caught.value.faults


def test_the_file_of_the_documentation(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        """
name: ppo-lr
command: python 'my ppo.py' --lr {lr} --seed {seed}
method: random
parameters:
  momentum: {values: [0.9, 0.99], when: {optimizer: sgd}}
  lr: [1e-3, 3e-4]
  clip: {uniform: [0.1, 0.3]}
  layers: {log_int: [1, 64]}
  optimizer: [adam, sgd]
  env: CartPole-v1
trials: 20
seeds: 5
metric: {name: perf/return, goal: minimize, of: best}
retries: 1
resources: {cpus: 1, memory: 2GiB, gpus: 0.5, parallel: 8}
environment: {WANDB_MODE: offline, EMPTY: }
slurm: {partition: gpu, time: "24:00:00", nodes: 2}
""",
    )
    assert spec.name == "ppo-lr"
    assert spec.command == ("python", "my ppo.py", "--lr", "{lr}", "--seed", "{seed}")
    kinds = {one.name: one.kind for one in spec.space.dimensions}
    assert kinds["lr"] == Choices((0.001, 0.0003))
    assert kinds["clip"] == Range(0.1, 0.3)
    assert kinds["layers"] == Range(1, 64, log=True, whole=True)
    assert kinds["env"] == Choices(("CartPole-v1",))
    assert spec.names == ("lr", "clip", "layers", "optimizer", "momentum", "env", "seed")
    assert spec.always == {"lr", "clip", "layers", "optimizer", "env", "seed"}
    assert (spec.trials, spec.seeds, spec.retries) == (20, (0, 1, 2, 3, 4), 1)
    assert spec.metric == TrialMetric("perf/return", "minimize", "best")
    assert spec.resources == Resources(1, 2 << 30, 0.5, 8)
    assert spec.environment == {"WANDB_MODE": "offline", "EMPTY": ""}
    assert spec.options == {"slurm": {"partition": "gpu", "time": "24:00:00", "nodes": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001), ("-2E+4", -20000.0), (".5e1", 5.0), ("1.e2", 100.0), ("'1e-3'", "1e-3"), ("1e", "1e"),
        ("1", 1), ("1.0", 1.0), ("true", True), ("null", None), ("~", None), ("abc", "abc"), ("'1'", "1"),
        ("2026-11-21", "2026-11-21"), ("0x10", 16), ("''", ""), ('"é\\n"', "é\n"), ("-9223372036854775807", -(2**63 - 1)),
    ],
)  # fmt: skip
def test_what_a_value_is(tmp_path: Path, text: str, expected: Any) -> None:
    (found,) = read(tmp_path, f"{RUN}parameters: {{x: [{text}]}}").space.dimensions
    assert isinstance(found.kind, Choices)
    (value,) = found.kind.values
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", (0, 1, 2)), ("1", (0,)), ("1..3", (1, 2, 3)), ("-1 .. 1", (-1, 0, 1)), ("[7, 3]", (7, 3)), ("[7]", (7,)),
        (str(MAX_SEEDS), tuple(range(MAX_SEEDS))),
    ],
)  # fmt: skip
def test_seeds(tmp_path: Path, text: str, expected: tuple[int, ...]) -> None:
    assert read(tmp_path, f"{RUN}seeds: {text}").seeds == expected


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "1.5", "true", "3..1", "[]", "[1.5]", "[true]", "x", "10001", "1..99999999999999999999", "9" * 30,
     "0..1000000000000", "{a: 1}", "[[1]]", "9" * 5000],
)  # fmt: skip
def test_no_seeds(tmp_path: Path, text: str) -> None:
    (told,) = faults(tmp_path, f"{RUN}seeds: {text}")
    assert told.startswith("line 2: seeds ")
    assert len(told) < 300


def test_a_seed_twice(tmp_path: Path) -> None:
    assert faults(tmp_path, f"{RUN}seeds: [1, 1]") == ["line 2: seeds names a seed twice"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000", 1000), ("2GiB", 2 << 30), ("1.5 GB", 1_500_000_000), ("500MB", 500_000_000), ("4k", 4000), ("1 KiB", 1024),
     ("2T", 2 * 10**12), ("0", 0)],
)  # fmt: skip
def test_sizes(tmp_path: Path, text: str, expected: int) -> None:
    assert read(tmp_path, f"{RUN}resources: {{memory: {text}}}").resources.memory == expected


@pytest.mark.parametrize("text", ["2XB", "-1", "GiB", "two", "9" * 400, "1e400", "[1]"])
def test_no_size(tmp_path: Path, text: str) -> None:
    (told,) = faults(tmp_path, f"{RUN}resources: {{memory: {text}}}")
    assert told.startswith("line 2: resources.memory ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("parameters: {a: 1}", ["line 1: command is missing: what is to be run, or experiment: file.py:function"]),
        ("command: ''", ["line 1: command is missing: what is to be run, or experiment: file.py:function"]),
        ("command: 'a \"b'", ["line 1: command has a quote that does not end: No closing quotation"]),
        ("command: []", ["line 1: command must be the program and its arguments"]),
        ("command: [a, [b]]", ["line 1: command must be the program and its arguments"]),
        ("command: {a: b}", ["line 1: command must be a text"]),
        ("command: '\"\"'", ["line 1: command names no program"]),
        ('command: ["a\\0b"]', ["line 1: command holds a NUL character, which no program can be given"]),
        ('command: "a\\0b"', ["line 1: command holds a NUL character, which no program can be given"]),
        (f"{RUN}experiment: a.py:f", ["line 2: experiment and command cannot both be given"]),
        ("experiment: a.py", ["line 1: experiment must be file.py:function or module:function"]),
        (f"{RUN}name: a/b", ["line 2: name 'a/b' must be letters, digits, '_', '-' and '.'"]),
        (f"{RUN}name: .hidden", ["line 2: name '.hidden' must be letters, digits, '_', '-' and '.'"]),
        (f"{RUN}nmae: a", ["line 2: nmae unknown key; did you mean 'name'?"]),
        (f"{RUN}seed: 3", ["line 2: seed is called seeds here: 5, or 1..5, or a list"]),
        (f"{RUN}seeds: 1\nseeds: 2", ["line 3: seeds is given twice"]),
        (f"{RUN}method: gird", ["line 2: method must be grid, list, random or optuna, not 'gird'; did you mean 'grid'?"]),
        (f"{RUN}method: random", ["line 1: trials is missing: how many choices method random makes"]),
        (f"{RUN}trials: 3", ["line 2: trials has no meaning with method grid, which tries each once"]),
        (f"{RUN}method: list", ["line 1: list is missing: the trials of method list"]),
        (f"{RUN}list: [{{a: 1}}]", ["line 2: list has a meaning only with `method: list`"]),
        (f"{RUN}method: list\nlist: 3", ["line 3: list must be a list of trials, each with its parameters"]),
        (f"{RUN}method: list\nlist: [3]", ["line 3: list[1] must hold keys and values, not '3'"]),
        (
            f"{RUN}method: list\nlist: [{{a: 1}}]\nparameters: {{a: 2}}",
            ["line 3: list and parameters cannot both name a parameter"],
        ),
        (
            f"{RUN}parameters: {{x: {{uniform: [0, 1]}}}}",
            ["line 2: parameters x: a range cannot be tried whole; give values, or `method: random`"],
        ),
        (
            f"{RUN}method: optuna\ntrials: 3",
            ["line 1: metric is missing: what optuna is to make better, as in {name: perf/return, goal: maximize}"],
        ),
        (f"{RUN}metric: {{goal: maximize}}", ["line 2: metric.name is missing"]),
        (
            f"{RUN}metric: {{name: a, goal: up}}",
            ["line 2: metric.goal must be maximize or minimize, not 'up'"],
        ),
        (f"{RUN}parameters: {{seed: 1}}\nseeds: 2", ["line 3: seeds and a parameter called seed cannot both be given"]),
        (f"{RUN}arguments: --x", ["line 2: arguments must hold {name} and {value}, as in --{name}={value}"]),
        (
            f"{RUN}resources: {{gpus: 1.5}}",
            ["line 2: resources gpus must be a whole number, or a part of one below 1"],
        ),
        (f"{RUN}resources: {{cpus: 0}}", ["line 2: resources.cpus must be a number from 0.01 to 4096, not '0'"]),
        (f"{RUN}resources: {{cpu: 1}}", ["line 2: resources.cpu unknown key; did you mean 'cpus'?"]),
        (f"{RUN}retries: -1", ["line 2: retries must be a whole number from 0 to 1000, not '-1'"]),
        (f"{RUN}environment: [a]", ["line 2: environment must hold keys and values, not a list"]),
        (f"{RUN}environment: {{A: on}}", ["line 2: environment.A means true or false as it is written; put it in quotes"]),
        (f"{RUN}environment: {{A=B: c}}", ["line 2: environment 'A=B' cannot be a variable's name"]),
        (
            f'{RUN}environment: {{A: "\\0"}}',
            ["line 2: environment.A holds a NUL character, which no program can be given"],
        ),
        (f"{RUN}parameters: 3", ["line 2: parameters must hold keys and values, not '3'"]),
        (f"{RUN}parameters: {{x: []}}", ["line 2: parameters.x has no values"]),
        (f"{RUN}parameters:\n  x: [1, 2, 1]", ["line 3: parameters.x names a value twice"]),
        (f"{RUN}parameters:\n  x: [1e-3, 0.001]", ["line 3: parameters.x names a value twice"]),
        (f"{RUN}parameters:\n  x: [1, [2]]", ["line 3: parameters.x must be one value, not a list"]),
        (f"{RUN}parameters:\n  x: [.nan]", ["line 3: parameters.x must be a finite number, not '.nan'"]),
        (f"{RUN}parameters:\n  x: [1e999]", ["line 3: parameters.x must be a finite number, not '1e999'"]),
        (
            f"{RUN}parameters:\n  x: [99999999999999999999]",
            ["line 3: parameters.x must be a whole number of 64 bits, not '99999999999999999999'"],
        ),
        (
            f'{RUN}parameters:\n  x: ["\\0"]',
            ["line 3: parameters.x holds a NUL character, which no program can be given"],
        ),
        (
            f'{RUN}parameters:\n  x: ["\\ud800"]',
            ["line 3: parameters.x holds half a character, which no program can be given"],
        ),
        (f"{RUN}parameters:\n  a b: 1", ["line 3: parameters 'a b' cannot be a parameter's name: no spaces and braces"]),
        (
            f"{RUN}parameters:\n  x: {{uniform: [0, 1], int: [1, 2]}}",
            [
                "line 3: parameters.x must hold one of values, uniform, log_uniform, int, log_int; beside it only `when`"
            ],
        ),
        (
            f"{RUN}parameters:\n  x: {{unifrom: [0, 1]}}",
            ["line 3: parameters.x.unifrom unknown key; did you mean 'uniform'?"],
        ),
        (f"{RUN}parameters:\n  x: {{uniform: 3}}", ["line 3: parameters.x.uniform must be two numbers: [smallest, largest]"]),
        (
            f"{RUN}parameters:\n  x: {{int: [0.5, 2]}}",
            ["line 3: parameters.x.int must be two whole numbers: [smallest, largest]"],
        ),
        (f"{RUN}parameters:\n  x: {{uniform: [2, 1]}}", ["line 3: parameters.x.uniform must be [smallest, largest]"]),
        (
            f"{RUN}parameters:\n  x: {{log_uniform: [0, 1]}}",
            ["line 3: parameters.x.log_uniform must be [smallest, largest], both above 0"],
        ),
        (
            f"{RUN}parameters:\n  x: {{value: 1, when: {{y: 1}}}}",
            ["line 3: parameters x: its `when` names 'y', which is not another parameter"],
        ),
        (
            f"{RUN}parameters:\n  o: [adam, sgd]\n  x: {{value: 1, when: {{o: sdg}}}}",
            ["line 3: parameters x: its `when` requires o = 'sdg', which is not one of its values"],
        ),
        ("", ["is empty; `rla sweep --help` describes the format"]),
        ("- a", ["line 1: must hold keys and values, not a list"]),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_line(tmp_path: Path, text: str, told: list[str]) -> None:
    assert faults(tmp_path, text) == told


def test_all_faults_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    told = faults(tmp_path, f"{RUN}trails: 3\nseeds: x\nparameters:\n  a: []\nretries: many\n")
    assert [one.split(":")[0] for one in told] == ["line 2", "line 3", "line 5", "line 6"]


def deep(levels: int) -> str:
    return f"{RUN}parameters: {{x: {'[' * levels}1{']' * levels}}}"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "is not YAML: written out, it has more than"),
        (deep(20_000), "is not YAML: more than 100 lists and mappings inside one another"),
        (deep(90), "parameters.x must be one value, not a list"),
        (b"x" * (10 << 20), "cannot be read: "),
        (b"command: a\0b", "is not YAML: "),
        (b"\xff\xfe\0\0", "is not YAML: "),
        (b"command: \x80abc", "is not YAML: "),
        ("command: [unended", "line 1: is not YAML: "),
        ("a: &x [*x]", "is not YAML: "),
        ("command: *nobody", "is not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", "is not YAML: "),
        (f"{RUN}parameters: {{x: !!python/name:os.system ''}}", "parameters.x cannot be read: could not determine"),
        (f"{RUN}parameters: {{x: [{'9' * 10_000}]}}", "parameters.x "),
        (f"{RUN}? [a, b]\n: 1", "a key must be a name, not a list"),
        (f"{RUN}<<: 3", "has a `<<` that cannot be merged"),
    ],
)  # fmt: skip
def test_hostile_yaml_is_a_fault_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.process_time()
    found = faults(tmp_path, text)
    assert told in found[0]
    assert len(str(found)) < 2000
    assert time.process_time() - began < 10
    assert not (tmp_path / "evil").exists()


def test_a_tag_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = read(tmp_path, f"{RUN}parameters: {{x: !!python/object/apply:os.system ['touch evil']}}")
    assert list(spec.space.grid()) == [{"x": "touch evil"}]
    assert not (tmp_path / "evil").exists()


def test_anchors_and_merges_are_read(tmp_path: Path) -> None:
    text = (
        "command: a {args}\nparameters: &p {x: &x [1, 2]}\nmethod: list\nlist: [{<<: &o {y: 1}, z: 2}, *o]\n"
    )
    spec = read(tmp_path, text)
    assert spec.listed == ({"z": 2, "y": 1}, {"y": 1})
    assert (spec.names, spec.always) == (("x", "y", "z"), frozenset({"x", "y"}))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "folder.yaml").mkdir()
    for name in ("fifo.yaml", "folder.yaml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_spec(tmp_path / name)
    with pytest.raises(ConfigError, match="there is no such file; `rla sweep --help`"):
        read_spec(tmp_path / "none.yaml")
    (tmp_path / "real.yaml").write_text(RUN)
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    assert read_spec(tmp_path / "link.yaml").name == "link"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lr.yaml", "lr"),
        ("my sweep.v2.yaml", "my-sweep.v2"),
        ("日本.yaml", "sweep"),
        ("-x.yaml", "x"),
        ("..yaml", "sweep"),
    ],
)
def test_a_sweep_is_named_as_its_file(tmp_path: Path, name: str, expected: str) -> None:
    assert read(tmp_path, RUN, name).name == expected


def test_json_is_yaml() -> None:
    spec = make_spec({"command": ["a", "{args}"], "parameters": {"x": (1, 2.5)}, "seeds": 2}, "s")
    assert spec.names == ("x", "seed")
    with pytest.raises(ConfigError, match="seeds must be"):
        make_spec({"command": "a", "seeds": "x"}, "s")


def test_what_does_not_fit_together_is_told_beside_other_faults(tmp_path: Path) -> None:
    told = faults(tmp_path, "command: 'true'\nmethod: random\nretries: many\n")
    assert len(told) == 2
    assert told[0].startswith("line 1: trials is missing")
    assert told[1].startswith("line 3: ")


def test_a_parameters_own_faults_are_told_beside_those_of_other_keys(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        RUN
        + """retries: -3
parameters:
  momentum: {when: {optimizer: sgd}}
  lr: {uniform: [0.1]}
seeds: 2
""",
    )
    assert [one.partition(":")[0] for one in found] == ["line 2", "line 4", "line 5"]
    found = faults(tmp_path, RUN + "retries: -3\nparameters: {lr: {uniform: [0, 1]}, seed: 1}\nseeds: 2\n")
    assert len(found) == 3
    assert "a range cannot be tried whole" in found[1]
    assert "a parameter called seed cannot both be given" in found[2]
