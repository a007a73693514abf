"""`rla init`, `push`, `pull`, `verify`: a project's rla_config.yaml, and the master that it names.

Copying between a database and its master is the agent package's work (`rla-agent transfer …`), started as a
process of its own, so that the client package never imports the agent's. `--config` and `--data-root` are
found as for the other commands (the configuration also beside and above the database); everything else is
passed on.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import BEGIN, MASTER, AsJson, add_command, open_database, print_done, say
from rla_client.config.schema import CONFIG_NAME, DATA_FOLDER, require_config
from rla_client.contract.errors import ArgumentError
from rla_client.contract.textformat import examples
from rla_client.database.tree import find_data_root

IGNORE_NAME = ".gitignore"
IGNORE_HEAD = "# runs and their data (rla)"
SNIPPET = """\
Add to your training script:

    import rla_client

    # args: dict, Namespace, dataclass, OmegaConf
    rla_client.init({table}, config=args, track=["seed"]{where})

    # in the loop
    rla_client.log({{"loss/policy": loss}}, step=step)

Then look: rla ls, rla show, rla web, rla-agent status{option}
"""
INTERRUPTED_S = 1.0  # enough to end by the terminal's Ctrl-C
_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
_HELP = {
    "push": "Send items to the master; files it already has are not replaced.",
    "pull": "Fetch items from the master; local files are not replaced. --follow keeps fetching.",
    "verify": "Compare the master with what was sent: every file is hashed, unless --sizes.",
}
_EXAMPLES = {
    "push": ("rla push", "rla push --table cartpole --kind checkpoint"),
    "pull": ("rla pull", "rla pull --table cartpole --follow"),
    "verify": ("rla verify", "rla verify --sizes"),
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, init, BEGIN, "rla init", "rla init YOUR_PROJECT")
    for name, text in _HELP.items():
        shown = examples(*_EXAMPLES[name])
        app.command(name, help=text, context_settings=_PASS_ON, rich_help_panel=MASTER, epilog=shown)(
            _passing
        )


# -- a project -----------------------------------------------------------------------------------


def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder.", show_default=False)] = Path(),
    data: Annotated[
        str, typer.Option("--data", help="Folder of the database, relative to the project.")
    ] = DATA_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Write a commented rla_config.yaml, extend .gitignore, and show what to add to a script."""
    done = set_up(folder, data)
    snippet = snippet_of(folder, data)
    print_done({"done": done, "snippet": snippet}, "\n".join([*done, "", snippet]), as_json=as_json)


def snippet_of(folder: Path, data: str) -> str:
    """What to add to a script of the project, whose runs then go where `data` says, and what to type then."""
    usual = data.strip("/") == DATA_FOLDER
    return SNIPPET.format(
        table=json.dumps(folder.absolute().name, ensure_ascii=False),
        where="" if usual else f", data_root={json.dumps(data, ensure_ascii=False)}",
        option="" if usual else f"; the first three with --data-root {shlex.quote(data)}",
    )


def set_up(folder: Path, data: str = DATA_FOLDER) -> list[str]:
    """Make `folder` a project.

    Args:
        folder: exists.
        data: the database's folder below it, for .gitignore.

    Returns:
        What was done, one line each.

    Raises:
        ArgumentError: it is not a folder, or has an rla_config.yaml already; nothing was changed.
    """
    from rla_client.config.schema import template_text

    if not folder.is_dir():
        raise ArgumentError(f"{folder} is not a folder")
    config = folder / CONFIG_NAME
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(template_text())
    except FileExistsError:
        raise ArgumentError(
            f"{config} is there already and was not touched; delete it first for a fresh one"
        ) from None
    done = [f"wrote {config}"]
    added = ignore(folder / IGNORE_NAME, [f"/{data.strip('/')}/", "/plot.png"])
    if added:
        done.append(f"added to {folder / IGNORE_NAME}: {' '.join(added)}")
    return done


def ignore(path: Path, lines: list[str]) -> list[str]:
    """Append the lines that a .gitignore lacks; returns them."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    present = {line.strip() for line in text.splitlines()}
    missing = [line for line in lines if line not in present and line.strip("/") not in present]
    if missing:
        begin = "" if not text or text.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(begin + "\n".join([IGNORE_HEAD, *missing]) + "\n")
    return missing


# -- its master ----------------------------------------------------------------------------------


def _passing(context: typer.Context) -> None:
    raise typer.Exit(_transfer(str(context.info_name), list(context.args)))


def _transfer(name: str, arguments: list[str]) -> int:
    """Run one transfer command; returns its exit code.

    Args:
        name: push, pull or verify.
        arguments: as given by the user.

    Raises:
        DatabaseError: no rla_config.yaml, or no database, can be found from here; for push and verify:
            the folder that was given is none.
    """
    command = [sys.executable, "-m", "rla_agent", "transfer", name]
    words = ["--data-root" if word == "-d" else word for word in arguments]
    if {"--help", "-h"} & set(words):
        return _print_help(command, name)
    root = _value(words, "--data-root")
    if root is None:
        root = os.environ.get("RLA_DATA_ROOT") or str(find_data_root(Path.cwd()))
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
    """Let an interrupted child end as it likes; Ctrl-C reached it, too, a signal to us alone did not."""
    try:
        return child.wait(INTERRUPTED_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        return child.wait()


def _print_help(command: list[str], name: str) -> int:
    """The agent package's own help, with this command's name; what is found here is not required."""
    room = str(shutil.get_terminal_size((80, 24)).columns)
    env = {**os.environ, "COLUMNS": room}
    done = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, text=True, check=False, env=env)
    text = done.stdout.partition(" Examples:")[0]  # which are of rla-agent
    text = text.replace(f"python -m rla_agent transfer {name}", f"rla {name}")
    if text:
        say(text.replace("[required]", "(or found)").replace("│ *  ", "│    ").rstrip("\n"))
        say("\n Examples:\n" + "\n".join(f" {line}" for line in _EXAMPLES[name]))
    return done.returncode


def _value(words: list[str], option: str) -> str | None:
    """What an option was given, None when it was not."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None
