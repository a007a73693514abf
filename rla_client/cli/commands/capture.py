"""`rla capture install|remove|check`: recording of unchanged programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Annotated

import typer

from rla_client.capture.environment_hook import install as write_files
from rla_client.capture.environment_hook import remove as remove_files
from rla_client.capture.environment_hook import site_folder
from rla_client.cli.options import AsJson
from rla_client.cli.output import say
from rla_client.cli.registration import BEGIN, add_command
from rla_client.contract.capture.environment import (
    CHECK_VARIABLE,
    CaptureNotes,
    CaptureWish,
    captured_environment,
)
from rla_client.contract.capture.notes import LOADED, why_nothing
from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.command_line import examples
from rla_client.database.text.machine_text import json_text

CHECK_S = 60.0  # a command that starts no Python is then ended


def register(app: typer.Typer) -> None:
    """Add the command."""
    capture_app = typer.Typer(
        help="Record programs that know nothing of RLA: where `rla-agent run --capture` does not reach.",
        no_args_is_help=True,
    )
    add_command(capture_app, install, None, "rla capture install", "rla capture install --json")
    add_command(capture_app, remove, None, "rla capture remove", "rla capture remove --json")
    capture_app.command(
        "check",
        context_settings={"allow_interspersed_args": False},
        epilog=examples("rla capture check -- python train.py", "rla capture check -- uv run train.py"),
    )(check)
    whole = examples("rla-agent run --capture -- python train.py", "rla capture check -- python train.py")
    app.add_typer(capture_app, name="capture", rich_help_panel=BEGIN, epilog=whole)


def install(as_json: AsJson = False) -> None:
    """Let RLA_CAPTURE=all switch the capture on in this environment, also for `python -I` and `-E`."""
    folder = site_folder()
    new = write_files(folder)
    if as_json:
        say(json_text({"folder": str(folder), "changed": new}))
        return
    say(f"{'installed' if new else 'is installed'} in {folder}: RLA_CAPTURE=all python train.py")


def remove(as_json: AsJson = False) -> None:
    """Take back `install`."""
    folder = site_folder()
    gone = remove_files(folder)
    if as_json:
        say(json_text({"folder": str(folder), "changed": gone}))
        return
    say(f"removed from {folder}" if gone else f"is not installed in {folder}")


def check(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    as_json: AsJson = False,
) -> None:
    """Say whether a command's Python would be captured: it ends before its program begins.

    Where it takes no PYTHONPATH (`python -I`), nothing ends it, and the program runs.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ArgumentError(f"{command[0]} is not found\nhint: rla capture check -- python train.py")
    notes = CaptureNotes()
    environment = captured_environment(os.environ, CaptureWish("all"), notes.path)
    try:
        subprocess.run(
            [program, *command[1:]], env={**environment, CHECK_VARIABLE: "1"}, timeout=CHECK_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        say(f"{command[0]} was ended after {CHECK_S:.0f} s")
    finally:
        text = notes.take()
    loaded = [line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{LOADED} ")]
    if not loaded:
        raise ArgumentError(f"nothing would be captured: {why_nothing(text)}")
    if as_json:
        say(json_text({"captured_in": list(dict.fromkeys(loaded))}))
        return
    say(f"would be captured in {', '.join(dict.fromkeys(loaded))}")
