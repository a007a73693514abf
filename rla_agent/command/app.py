"""Entry point of `rla-agent`: all commands by name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final, NoReturn

import typer

from rla_agent.command.failures import EXIT_STATE
from rla_agent.command.group import app
from rla_client.contract.process.system import on_linux, why_not_recorded
from rla_client.contract.text.command_line import escape_unprintable, run_app, tell_error

# each is a module of this folder, or of a group's folder in it; the order is that of the help
COMMANDS: Final = (
    "start", "stop", "restart", "status", "logs", "check-config", "doctor", "drain", "run", "install-service",
    "replicate status", "replicate now", "replicate pause", "replicate resume", "replicate retry",
    "replicate fleet", "replicate add",
    "transfer remove", "transfer allow", "transfer lacks", "transfer trash", "transfer fetch",
    "transfer pull", "transfer push", "transfer verify", "trust", "prune", "alerts test", "alerts show",
    "forget",
)  # fmt: skip
NEED_LINUX: Final = frozenset(name.partition(" ")[0] for name in COMMANDS) - {
    "doctor",
    "status",
    "check-config",
}


def make_app(asked: str | None = None) -> typer.Typer:
    """The app with all its commands.

    Args:
        asked: import only this command or group, which takes less time; None, or an unknown one: all.
    """
    first_words = [name.partition(" ")[0] for name in COMMANDS]
    for name, first in zip(COMMANDS, first_words, strict=True):
        if asked == first or asked not in first_words:
            import_module(f"rla_agent.command.{name.replace('-', '_').replace(' ', '.')}")
    return app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command."""
    escape_unprintable(sys.stdout, sys.stderr)
    words = sys.argv[1:] if arguments is None else arguments
    completes = "_RLA_AGENT_COMPLETE" in os.environ
    if not on_linux() and words and words[0] in NEED_LINUX and "--help" not in words:
        tell_error(f"{why_not_recorded()}; see: rla-agent doctor")
        sys.exit(EXIT_STATE)
    run_app(make_app(words[0] if words and not completes else None), arguments, "rla-agent")


if __name__ == "__main__":
    main()
