"""Writes the manual pages of both programs: `python .ci/man_pages.py [FOLDER]`, docs/man without one."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from rla_client.contract import __version__

FOLDER = Path(__file__).parents[1] / "docs" / "man"
ENVIRONMENT = {
    "rla": [("RLA_DATA_ROOT", "The database, where --data-root is not given.")],
    "rla-agent": [
        ("RLA_STATE_DIR", "The state folder with the spool and agent.db."),
        ("RLA_RUNTIME_DIR", "The folder of the sockets."),
    ],
}
FILES = {
    "rla": [("rla_config.yaml", "Configuration of a project; the database is data beside it.")],
    "rla-agent": [
        ("~/.config/rla-agent/agent.yaml", "The agent's own configuration."),
        ("~/.local/state/rla-agent", "State, one folder for each machine."),
    ],
}


def escaped(text: str) -> str:
    """Text that roff prints as it is."""
    plain = re.sub(r"\s+", " ", text).strip().replace("\\", r"\e").replace("-", r"\-").replace("`", "")
    plain = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in plain)
    return r"\&" + plain if plain.startswith((".", "'")) else plain


def paragraphs(text: str) -> Iterator[str]:
    """Lines for a docstring's paragraphs."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text).strip())):
        if number:
            yield ".PP"
        yield escaped(paragraph)


def parameters(command: Any, kind: str) -> list[Any]:
    """Those of a click command that are an `option` or an `argument`, hidden ones left out."""
    return [
        one for one in command.params if one.param_type_name == kind and not getattr(one, "hidden", False)
    ]


def placeholder(parameter: Any) -> str:
    """What stands for a value: RUN, FILE."""
    return str(parameter.metavar or max(parameter.opts, key=len)).upper().strip("-[]. ")


def usage(path: str, command: Any) -> str:
    """The synopsis of a command."""
    words = [rf"\fB{escaped(path)}\fR"]
    if parameters(command, "option"):
        words.append("[OPTIONS]")
    for argument in parameters(command, "argument"):
        name = placeholder(argument)
        name += "..." if argument.nargs == -1 or getattr(argument, "multiple", False) else ""
        words.append(escaped(name if argument.required else f"[{name}]"))
    return " ".join([*words, *(["COMMAND"] if hasattr(command, "commands") else [])])


def options(command: Any) -> Iterator[str]:
    """An entry for each option of a command, and for each argument with an explanation."""
    for argument in parameters(command, "argument"):
        if getattr(argument, "help", None):
            yield from (".TP", rf"\fI{escaped(placeholder(argument))}\fR", escaped(argument.help))
    for option in parameters(command, "option"):
        names = ", ".join(rf"\fB{escaped(name)}\fR" for name in [*option.opts, *option.secondary_opts])
        value = "" if option.is_flag or option.secondary_opts else rf" \fI{escaped(placeholder(option))}\fR"
        yield from (".TP", names + value, escaped(option.help or ""))


def commands(path: str, group: Any) -> Iterator[str]:
    """A section for each command of a group, and for those below it."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        whole = f"{path} {name}"
        yield f".SS {usage(whole, command)}"
        yield from paragraphs(command.help or "")
        yield from options(command)
        if hasattr(command, "commands"):
            yield from commands(whole, command)


def page(name: str, app: typer.Typer, other: str) -> str:
    """The manual page of a program."""
    group: Any = typer.main.get_command(app)
    lines = [f'.TH {name.upper()} 1 "" "rla\\-agent {__version__}" "User Commands"']
    about = group.help.strip().splitlines()[0]
    lines += [".SH NAME", rf"{escaped(name)} \- {escaped(about[0].lower() + about[1:].rstrip('.'))}"]
    lines += [".SH SYNOPSIS", usage(name, group), ".SH DESCRIPTION", *paragraphs(group.help)]
    lines += [*paragraphs(group.epilog or ""), ".SH OPTIONS", *options(group)]
    lines += [".SH COMMANDS", *commands(name, group)]
    for title, entries in (("ENVIRONMENT", ENVIRONMENT[name]), ("FILES", FILES[name])):
        lines += [f".SH {title}"]
        for term, text in entries:
            lines += [".TP", rf"\fB{escaped(term)}\fR", escaped(text)]
    lines += [".SH SEE ALSO", rf"\fB{escaped(other)}\fR(1)"]
    return "\n".join(line for line in lines if line) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, module, other in (
        ("rla", "rla_client.cli.app", "rla-agent"),
        ("rla-agent", "rla_agent.command.app", "rla"),
    ):
        app = importlib.import_module(module).make_app()
        (folder / f"{name}.1").write_text(page(name, app, other))
