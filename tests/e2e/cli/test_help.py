"""What the commands say of themselves: the first words, the groups, two examples each, and wrong words."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rla_agent.command.app import make_app as make_agent_app
from rla_client.cli.app import COMMAND_MODULES, FIRST_DAY, make_app

APPS = {"rla": make_app, "rla-agent": make_agent_app}
MODULES = {"rla": "rla_client.cli.app", "rla-agent": "rla_agent.command.app"}


def every_command(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(f"{path} {name}", below)


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    return {name: typer.main.get_command(make()) for name, make in APPS.items()}


def run(program: str, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    script = f"import sys; sys.argv[0] = {program!r}; from {MODULES[program]} import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_each_command_shows_two_examples_that_it_takes(programs: dict[str, Any]) -> None:
    checked = 0
    for program, whole in programs.items():
        for path, command in every_command(program, whole):
            head, *lines = (command.epilog or "").split("\n\n")[-3:]
            assert (head, len(lines)) == ("Examples:", 2), path
            for line in lines:
                assert len(line) <= 76, line
                parse(programs, re.split(r" (?:&&|>|<) ", line.removeprefix("sudo "))[0])
                checked += 1
    assert checked > 100


def parse(programs: dict[str, Any], line: str) -> None:
    """Find the command of an example, and have it read its options, without running it."""
    program, *words = shlex.split(line)
    command = programs[program]
    context = command.make_context(program, [*words], resilient_parsing=True)
    while words and hasattr(command, "commands"):
        _name, command, words = command.resolve_command(context, words)
        assert command is not None, line
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = {word for word in words if re.match(r"--?[a-z]", word)}
    if "--" not in words and not command.context_settings.get("ignore_unknown_options"):
        assert given <= {*known, "--help"}, line


def test_each_command_of_rla_has_a_group(programs: dict[str, Any]) -> None:
    commands = programs["rla"].commands
    assert set(commands) == set(COMMAND_MODULES)
    assert {name for name, command in commands.items() if not command.rich_help_panel} == set()


def test_without_a_command_the_first_five(programs: dict[str, Any]) -> None:
    done = run("rla")
    assert (done.returncode, done.stdout, done.stderr) == (0, FIRST_DAY, "")
    named = re.findall(r"^  rla (\w+)", done.stdout, re.MULTILINE)
    assert len(named) == 5
    assert set(named) <= set(programs["rla"].commands)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("rla", "lss"), "did you mean 'ls'?"),
        (("rla", "ls", "--grup", "lr"), "did you mean --group or --run?"),
        (("rla", "compare", "--wher", "lr > 1"), "did you mean --where?"),
        (("rla", "ls", "--hlp"), "did you mean --help?"),
        (("rla", "table", "--latex"), "did you mean --format latex?"),
        (("rla", "show", "a", "b", "c"), "rla show --help"),
        (("rla", "ls", "--limit", "many"), "rla ls --help"),
        (("rla-agent", "statsu"), "did you mean 'status' or 'start' or 'restart'?"),
        (("rla-agent", "status", "now"), "rla-agent status --help"),
    ],
)
def test_wrong_words(words: tuple[str, ...], hint: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert second.casefold() == f"hint: {hint}".casefold()
