"""Command line of a run, with its environment variables.

Parameters replace their names in the command, `--lr {lr}`; `{args}` stands for all of them, and is
appended to a command without any name. A replaced value stays one word, whatever it holds: there is no
shell. A command may also name {run_id}, {number}, {trial}, {name} and {data_root}; `{{` is a brace.

The environment identifies the run for the client, so that a killed run continues at its last checkpoint:
RLA_RUN_ID and RLA_RESUME=allow, RLA_DATA_ROOT, and RLA_RUN_FILE, into which the client writes the item for
the sweep. RLA_SWEEP_PARAMETERS has the parameters as JSON, for programs that read it.
"""

from __future__ import annotations

import json
import os
import shutil
import string
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rla_client.config.project import DATA_ROOT_VARIABLE
from rla_client.contract.text.spelling import hint
from rla_client.sweep.engines.base import Work
from rla_client.sweep.journal import Journal, SweepError
from rla_client.sweep.run_state import SweepRun
from rla_client.sweep.spec import Spec

PARAMETERS_VARIABLE = "RLA_SWEEP_PARAMETERS"
EXPERIMENT_VARIABLE = "RLA_SWEEP_EXPERIMENT"
ALL = "args"
OTHERS = ("run_id", "number", "trial", "name", "data_root")
CALLER = (sys.executable, "-m", "rla_client.sweep.call")


def check_command(spec: Spec, folder: Path) -> None:
    """Check that every run can be started.

    Raises:
        SweepError: the command has an unknown name, leaves out a parameter, or its program does not exist.
    """
    if spec.experiment:
        file = spec.experiment.rpartition(":")[0]
        if file.endswith(".py") and not (folder / file).is_file():
            raise SweepError(f"experiment: there is no file {folder / file}")
        return
    named = set(_named(spec.command))
    known = (*spec.names, *OTHERS, ALL)
    for name in sorted(named - {*known}):
        raise SweepError(f"the command names {{{name}}}, which is not a parameter\nhint: {hint(name, known)}")
    for name in sorted((named & {*spec.names}) - spec.always):
        raise SweepError(
            f"the command names {{{name}}}, which not every run has\nhint: write {{args}}: all that a run has"
        )
    left = [name for name in spec.names if name not in named]
    if named & {*spec.names} and left and ALL not in named:
        raise SweepError(
            f"the command does not use {', '.join(left)}\nhint: add {{{left[0]}}}, or {{args}} for them all"
        )
    program = spec.command[0]
    at = folder / program if os.sep in program else program
    if "{" not in program and shutil.which(at) is None:
        raise SweepError(f"the command's program {program!r} is not there, or cannot be run")


def command_of(spec: Spec, journal: Journal, run: SweepRun) -> tuple[str, ...]:
    """Program and arguments of a run, as words."""
    if spec.experiment:
        return CALLER
    named = set(_named(spec.command))
    words = spec.command if named & {*spec.names, ALL} else (*spec.command, f"{{{ALL}}}")
    texts = {
        name: repr(value) if isinstance(value, float) else str(value)
        for name, value in run.parameters.items()
    }
    others = {
        "run_id": journal.run_id(run),
        "number": str(run.number),
        "trial": str(run.trial),
        "name": spec.name,
        "data_root": str(journal.data_root),
    }
    arguments = [
        word.replace("{name}", name).replace("{value}", text)
        for name, text in texts.items()
        for word in spec.arguments.split()
    ]
    return tuple(_filled(words, {**others, **texts}, arguments))


def environment_of(spec: Spec, journal: Journal, run: SweepRun) -> dict[str, str]:
    """Environment variables to add for a run."""
    found = {
        DATA_ROOT_VARIABLE: str(journal.data_root),
        "RLA_RUN_ID": journal.run_id(run),
        "RLA_RESUME": "allow",
        "RLA_RUN_FILE": journal.name_of(run, "items"),
        PARAMETERS_VARIABLE: json.dumps(run.parameters),
        **({EXPERIMENT_VARIABLE: spec.experiment} if spec.experiment else {}),
    }
    cpus = spec.resources.cpus
    if cpus >= 1:  # otherwise each of eight runs on eight cores starts eight threads
        found |= {
            name: str(int(cpus)) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ
        }
    return {**found, **spec.environment}


def work_of(spec: Spec, journal: Journal, run: SweepRun) -> Work:
    """Work for an engine to start a run."""
    command, environment = command_of(spec, journal, run), environment_of(spec, journal, run)
    return replace(files_of(journal, run), command=command, environment=environment)


def files_of(journal: Journal, run: SweepRun) -> Work:
    """Work for an engine to find a run that an earlier driver started, by its files."""
    files = {kind: journal.name_of(run, kind) for kind in ("txt", "exit", "lock")}
    return Work(run.number, (), {}, journal.begun_in, files["txt"], files["exit"], files["lock"])


def can_start(spec: Spec, run: SweepRun) -> bool:
    """Whether a run, perhaps planned by another version of the file, has all parameters in the command."""
    return {*_named(spec.command)} & {*spec.names} <= run.parameters.keys()


def _named(words: tuple[str, ...]) -> Iterator[str]:
    for word in words:
        try:
            parts = list(string.Formatter().parse(word))
        except ValueError as error:
            raise _misplaced(word, str(error)) from None
        for _, name, form, conversion in parts:
            if name is None:
                continue
            if not name or form or conversion:
                raise _misplaced(word, "a name alone stands in braces")
            yield name


def _misplaced(word: str, why: str) -> SweepError:
    return SweepError(
        f"the command's {word!r}: {why}\nhint: parameters are {{name}}; for a brace itself write {{{{ or }}}}"
    )


def _filled(words: tuple[str, ...], texts: Mapping[str, str], arguments: list[str]) -> Iterator[str]:
    for word in words:
        if word == f"{{{ALL}}}":
            yield from arguments
            continue
        parts = string.Formatter().parse(word)
        yield "".join(
            literal + ("" if name is None else " ".join(arguments) if name == ALL else texts[name])
            for literal, name, _, _ in parts
        )
