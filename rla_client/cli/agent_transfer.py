"""Transfers through the agent package.

Copying between a database and its master is done by `rla-agent transfer …` of the agent package, in a
process of its own, so that the client package never imports the agent package. `--config` and
`--data-root` default as in the other commands (the configuration is also searched beside and above the
database); all other arguments are passed on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.output import say
from rla_client.cli.registration import MASTER
from rla_client.config.project import require_config
from rla_client.contract.text.command_line import examples
from rla_client.database.tree.data_root import find_data_root

INTERRUPTED_S = 1.0  # for a child that the terminal's Ctrl-C has reached
PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
TRANSFER_HELP = {
    "push": "Send items to the master; files it already has are not replaced.",
    "pull": "Fetch items from the master; local files are not replaced. --follow keeps fetching.",
    "verify": "Compare the master with what was sent: every file is hashed, unless --sizes.",
}
TRANSFER_EXAMPLES = {
    "push": ("rla push", "rla push --table cartpole --kind checkpoint"),
    "pull": ("rla pull", "rla pull --table cartpole --follow"),
    "verify": ("rla verify", "rla verify --sizes"),
}


def add_transfer(app: typer.Typer, name: str) -> None:
    """Add push, pull or verify to an app."""
    shown = examples(*TRANSFER_EXAMPLES[name])
    app.command(
        name, help=TRANSFER_HELP[name], context_settings=PASS_ON, rich_help_panel=MASTER, epilog=shown
    )(_pass_to_agent)


def _pass_to_agent(context: typer.Context) -> None:
    raise typer.Exit(_transfer(str(context.info_name), list(context.args)))


def _transfer(name: str, arguments: list[str]) -> int:
    """Run push, pull or verify with the user's arguments; returns its exit code.

    Raises:
        DatabaseError: no rla_config.yaml or no database is found; for push and verify also if the given
            folder
            is no database.
    """
    command = [sys.executable, "-m", "rla_agent", "transfer", name]
    words = ["--data-root" if word == "-d" else word for word in arguments]
    if {"--help", "-h"} & set(words):
        return _print_help(command, name)
    root = _value(words, "--data-root")
    if root is None:
        root = os.environ.get("RLA_DATA_ROOT") or str(find_data_root(Path.cwd(), new=name == "pull"))
        words += ["--data-root", root]
    if name != "pull":
        open_database(Path(root))
    if _value(words, "--config") is None:
        words += ["--config", str(require_config(Path.cwd(), Path(root).absolute()))]
    command += words
    with subprocess.Popen(command) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            return _ended(child)


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for an interrupted child; Ctrl-C has reached it, but a signal to this process alone has not."""
    try:
        return child.wait(INTERRUPTED_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        return child.wait()


def _print_help(command: list[str], name: str) -> int:
    """Print the agent package's help with this command's name and defaults."""
    env = {**os.environ, "COLUMNS": str(shutil.get_terminal_size((80, 24)).columns)}
    done = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, text=True, check=False, env=env)
    text = done.stdout.partition(" Examples:")[0]  # examples of rla-agent
    text = text.replace(f"rla-agent transfer {name}", f"rla {name}")
    if text:
        say(text.replace("[required]", "(or found)").replace("│ *  ", "│    ").rstrip("\n"))
        say("\n Examples:\n" + "\n".join(f" {line}" for line in TRANSFER_EXAMPLES[name]))
    return done.returncode


def _value(words: list[str], option: str) -> str | None:
    """Value of an option; None if it is not given."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None
