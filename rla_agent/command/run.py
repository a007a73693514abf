"""Command `rla-agent run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_client.contract.agent.places import find_places
from rla_client.contract.capture.environment import CaptureWish
from rla_client.contract.capture.parts import parse_parts
from rla_client.contract.text.command_line import examples

CAPTURE = "--capture"
_WITH_VALUE = frozenset({"--drain", "--config", "--table", "--track"})


class _RunCommand(TyperCommand):
    """Command whose `--capture` needs no value, which typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's or typer's own
        return super().parse_args(ctx, with_parts(args))


def with_parts(words: list[str]) -> list[str]:
    """The command line with `--capture` as `--capture=all`; words behind our own options are unchanged."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        if words[at] == CAPTURE:
            return [*words[:at], f"{CAPTURE}=all", *words[at + 1 :]]
        at += 2 if words[at] in _WITH_VALUE else 1
    return words


@app.command(
    cls=_RunCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    epilog=examples(
        "rla-agent run --capture -- python train.py --lr 0.01",
        "rla-agent run --drain 300 -- torchrun train.py",
    ),
)
def run(  # noqa: PLR0913, PLR0917 - the options of the command
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    drain_s: Annotated[
        float,
        typer.Option("--drain", min=0, help="Seconds to wait, after the command, until its data are stored."),
    ] = 60.0,
    console: Annotated[
        bool, typer.Option(help="Copy the command's output to console.txt in the log folder of its runs.")
    ] = True,
    config: ConfigOption = None,
    capture: Annotated[
        str | None,
        typer.Option(
            CAPTURE,
            metavar="[=PARTS]",
            help="Record what the command's Python programs log to TensorBoard, wandb, stable-baselines3 and "
            "others, without a change of theirs. PARTS: all, replace, -tensorboard, -wandb, -args, …",
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="Table of captured runs; default by project or script.")] = "",
    track: Annotated[
        str, typer.Option(metavar="NAMES", help="Hyper-parameters in the index of captured runs: seed,lr")
    ] = "",
) -> None:
    """Run a command with an agent of its own, for batch jobs and containers."""
    from rla_agent.command.wrapped_command.run_command import run_command  # noqa: PLC0415 - only here

    settings = settings_of(config)
    code = run_command(
        command,
        find_places(),
        settings,
        drain_s=drain_s,
        console=console,
        config=config,
        capture=_wish(capture, table, track),
    )
    raise typer.Exit(code)


def _wish(parts: str | None, table: str, track: str) -> CaptureWish | None:
    """Settings of the capture.

    Raises:
        typer.BadParameter: the options contradict each other, or a part is unknown.
    """
    if parts is None:
        if table or track:
            raise typer.BadParameter("--table and --track are for captured runs: add --capture")
        return None
    try:
        parse_parts(parts)
    except ValueError as error:
        raise typer.BadParameter(f"--capture: {error}") from error
    return CaptureWish(parts, table, track)
