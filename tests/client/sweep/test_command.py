"""How a run's program is started, and what it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sweep_lab import make_spec

from rla_client.sweep.call import parameters_of
from rla_client.sweep.command import CALLER, can_start, check_command, command_of, environment_of, work_of
from rla_client.sweep.engines.attempt_process import start_program
from rla_client.sweep.journal import Journal, SweepError
from rla_client.sweep.run_state import SweepRun
from rla_client.sweep.spec import Spec

SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


def spec_of(command: Any = "python", **content: Any) -> Spec:
    return make_spec({"command": command, **content}, "lr")


def words(command: Any, given: dict[str, Any], root: str = "/data", **content: Any) -> list[str]:
    """The command line of run 7 of trial 3."""
    content.setdefault("parameters", dict.fromkeys(given, "any"))
    journal = Journal(Path(root), "lr")
    journal.ident = "abc"
    return list(command_of(spec_of(command, **content), journal, SweepRun(7, 3, given)))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python t.py --lr {lr} --n={n}", ["python", "t.py", "--lr", "0.001", "--n=8"]),
        ("python t.py", ["python", "t.py", "--lr", "0.001", "--n", "8"]),
        ("python t.py {args} --last", ["python", "t.py", "--lr", "0.001", "--n", "8", "--last"]),
        ("sh -c 'run {args}'", ["sh", "-c", "run --lr 0.001 --n 8"]),
        ("p {{lr}} {lr}{n}", ["p", "{lr}", "0.0018"]),
        (
            "p {run_id} {number} {trial} {name} {data_root} {lr} {n}",
            ["p", "lr-abc-7", "7", "3", "lr", "/data", "0.001", "8"],
        ),
        (["my program", "a  b", "{lr}", "{n}"], ["my program", "a  b", "0.001", "8"]),
        ("'{lr}' \"$HOME\" `id` *{n}", ["0.001", "$HOME", "`id`", "*8"]),
    ],
)  # fmt: skip
def test_where_parameters_go(command: Any, expected: list[str]) -> None:
    assert words(command, {"lr": 1e-3, "n": 8}) == expected


def test_hydra_style() -> None:
    found = words("python t.py", {"optim.lr": 0.1, "+env": "a b"}, arguments="{name}={value}")
    assert found == ["python", "t.py", "optim.lr=0.1", "+env=a b"]


@pytest.mark.parametrize(
    "value", ["a b", 'it\'s "so"', "two\nlines", "日本", "--flag", "", "$(id)", "{lr}", "{{", "\\", "%s"]
)
def test_a_value_stays_one_word(value: str) -> None:
    assert words("p {x}", {"x": value}) == ["p", value]
    assert words("p --x={x}", {"x": value}) == ["p", f"--x={value}"]
    assert words("p {args}", {"x": value}) == ["p", "--x", value]
    assert words("p", {"x": value}, arguments="--{name}={value}") == ["p", f"--x={value}"]


def test_a_value_that_looks_like_the_placeholder_of_a_name() -> None:
    assert words("p", {"x": "{name}", "y": "{value}"}, arguments="{name}={value}") == [
        "p",
        "x={name}",
        "y={value}",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-3, "0.001"), (1e-7, "1e-07"), (0.1 + 0.2, "0.30000000000000004"), (True, "True"), (None, "None"),
        (2**62, "4611686018427387904"),
    ],
)  # fmt: skip
def test_how_values_are_written(value: Any, text: str) -> None:
    assert words("p {x}", {"x": value}) == ["p", text]


@pytest.mark.slow
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"])),
        min_size=1,
    )
)
def test_any_values_arrive_as_they_are(parameters: dict[str, str]) -> None:
    parameters = {f"p{name}": value for name, value in parameters.items()}
    command = ["p", *(f"{{{name}}}" for name in parameters)]
    assert words(command, parameters, parameters=dict.fromkeys(parameters, "any")) == [
        "p",
        *parameters.values(),
    ]


def test_a_program_gets_them(tmp_path: Path) -> None:
    parameters = {"a": "two\nlines 'é'", "b": "-x", "c": ""}
    spec = spec_of([sys.executable, "-c", SHOW, "{args}"], parameters=dict.fromkeys(parameters, "any"))
    journal = Journal(tmp_path / "dä ta", "lr")
    journal.begun_in = str(tmp_path)
    run = SweepRun(1, 1, parameters)
    journal.path(run, "txt").parent.mkdir(parents=True)
    work = work_of(spec, journal, run)
    assert start_program(work, {**os.environ, **work.environment}).wait() == 0
    assert json.loads(journal.path(run, "txt").read_text()) == [
        "--a",
        parameters["a"],
        "--b",
        "-x",
        "--c",
        "",
    ]
    assert journal.exit_status(run) == 0


@pytest.mark.parametrize(
    ("command", "content", "told"),
    [
        (
            "python {lrr}",
            {"parameters": {"lr": 1}},
            "names {lrr}, which is not a parameter\nhint: did you mean 'lr'?",
        ),
        (
            "python {lr}",
            {"parameters": {"lr": 1, "n": 2}, "seeds": 2},
            "does not use n, seed\nhint: add {n}, or {args}",
        ),
        (
            "python {m}",
            {"parameters": {"o": [1, 2], "m": {"value": 1, "when": {"o": 1}}}},
            "names {m}, which not every run has\nhint: write {args}",
        ),
        ("python {", {}, "the command's '{': "),
        ("python }", {}, "hint: parameters are {name}; for a brace itself write {{ or }}"),
        ("python {}", {}, "a name alone stands in braces"),
        ("python {lr:.3f}", {"parameters": {"lr": 1}}, "a name alone stands in braces"),
        ("python {lr!r}", {"parameters": {"lr": 1}}, "a name alone stands in braces"),
        ("no-such-program {args}", {}, "the command's program 'no-such-program' is not there"),
        ("./no-such-program {args}", {}, "the command's program './no-such-program' is not there"),
        ("./plain", {}, "the command's program './plain' is not there, or cannot be run"),
        ("exit 3", {}, "the command's program 'exit' is not there"),
    ],
)
def test_a_command_that_cannot_be_meant(
    tmp_path: Path, command: str, content: dict[str, Any], told: str
) -> None:
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(SweepError) as caught:
        check_command(spec_of(command, **content), tmp_path)
    assert told in str(caught.value)


def test_commands_that_can(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for command in ("./program", str(program), "{lr}", "python {lr} {trial}", "python {args} {lr}"):
        check_command(spec_of(command, parameters={"lr": 1}), tmp_path)
    check_command(make_spec({"experiment": "m.sub:f"}, "x"), tmp_path)
    with pytest.raises(SweepError, match="experiment: there is no file"):
        check_command(make_spec({"experiment": "none.py:f"}, "x"), tmp_path)


def test_what_a_run_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    journal = Journal(Path("/da ta"), "lr")
    journal.ident = "abc"
    spec = spec_of(
        "p", resources={"cpus": 2.5}, environment={"A": "b", "RLA_RESUME": "never"}, parameters={"x": 1}
    )
    assert environment_of(spec, journal, SweepRun(7, 3, {"x": "é"})) == {
        "RLA_DATA_ROOT": "/da ta",
        "RLA_RUN_ID": "lr-abc-7",
        "RLA_RESUME": "never",
        "RLA_RUN_FILE": "/da ta/local/sweeps/lr/runs/0007.items",
        "RLA_SWEEP_PARAMETERS": '{"x": "\\u00e9"}',
        "OMP_NUM_THREADS": "2",
        "A": "b",
    }
    called = make_spec({"experiment": "a.py:f", "resources": {"cpus": 0.5}}, "x")
    found = environment_of(called, journal, SweepRun(7, 3, {}))
    assert found["RLA_SWEEP_EXPERIMENT"] == "a.py:f"
    assert "OMP_NUM_THREADS" not in found
    assert command_of(called, journal, SweepRun(7, 3, {})) == CALLER


def test_parameters_are_read_back() -> None:
    assert parameters_of({"RLA_SWEEP_PARAMETERS": '{"x": 1}'}) == {"x": 1}
    for environment in ({}, {"RLA_SWEEP_PARAMETERS": "x"}, {"RLA_SWEEP_PARAMETERS": "3"}):
        with pytest.raises(SweepError, match="this is not a run of a sweep"):
            parameters_of(environment)


def test_a_run_of_another_file_lacks_what_the_command_names() -> None:
    spec = spec_of("p {lr} {new}", parameters={"lr": 1, "new": 2})
    assert not can_start(spec, SweepRun(1, 1, {"lr": 1}))
    assert can_start(spec, SweepRun(1, 1, {"lr": 1, "new": 2}))
    assert can_start(spec_of("p", parameters={"lr": 1}), SweepRun(1, 1, {}))


@pytest.mark.slow
def test_the_caller_outside_of_a_sweep(tmp_path: Path) -> None:
    done = subprocess.run(
        CALLER,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 1
    assert "this is not a run of a sweep" in done.stderr
