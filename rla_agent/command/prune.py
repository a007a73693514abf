"""Command `rla-agent prune`.

It frees local disk space of files that are on the master. It lists them; `--apply` deletes them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rla_agent.command.group import app
from rla_agent.command.master_session import EXIT_STAYED, session_failures
from rla_agent.replicate import registry, replicated_scope, target_config
from rla_agent.replicate.prune.automatic_pruning import rules_of
from rla_agent.replicate.prune.prune_plan import MAX_AT_ONCE, PrunePlan, PruneRules
from rla_agent.replicate.prune.pruner import Done, Pruner
from rla_agent.replicate.status_text import shown_target, size_text
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import PRUNABLE
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.terminal_text import printable

SHOWN: Final = 20  # files; --json lists all
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True)
class _PrunedDatabase:
    """A database with its target and rules of pruning."""

    root: str
    target: target_config.Target
    rules: PruneRules


@app.command(
    "prune", epilog=examples("rla-agent prune --older-than 30d", "rla-agent prune --free 100G --apply")
)
def prune(  # noqa: PLR0913 - options
    *,
    data_root: Annotated[
        Path | None, typer.Option("--data-root", help="Only this database; default: all that are replicated.")
    ] = None,
    older_than: Annotated[str, typer.Option(help="Only files unchanged for this long: 12h, 30d, 8w.")] = "",
    max_bytes: Annotated[
        str, typer.Option("--max", help="Delete the oldest files until the rest takes at most this: 200G.")
    ] = "",
    free: Annotated[
        str, typer.Option(help="Delete the oldest files until this much disk is free: 100G.")
    ] = "",
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="checkpoint (the default), results, tmp_data; repeatable."),
    ] = None,
    keep: Annotated[
        int, typer.Option(min=1, help="How many of the newest checkpoints of each name to keep.")
    ] = 1,
    sha256: Annotated[
        bool,
        typer.Option("--sha256/--sizes", help="Read each file back from the master before deleting it here."),
    ] = True,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete; without it, only list what would be deleted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Free local disk: delete files that are on the master; loading one fetches it back."""
    with session_failures():
        asked = _rules(older_than, max_bytes, free, tuple(kind or ("checkpoint",)), keep)
        chosen = list(_databases(find_places().state, data_root, asked))
        if not chosen:
            what = "no database is replicated" if data_root is None else f"{data_root} is not replicated"
            raise ArgumentError(
                f"{what} from here, so nothing can be pruned; see: rla-agent replicate status"
            )
        results = [_one(one, sha256=sha256, apply=apply, as_json=as_json) for one in chosen]
    if as_json:
        typer.echo(json.dumps({"applied": apply, "databases": results}, indent=1))
    if any(result["stayed"] for result in results):
        raise typer.Exit(EXIT_STAYED)


def _rules(
    older_than: str, max_bytes: str, free: str, kinds: tuple[str, ...], keep: int
) -> PruneRules | None:
    for kind in kinds:
        if kind not in PRUNABLE:
            raise ArgumentError(f"{kind} is never pruned; kinds that are: {', '.join(PRUNABLE)}")
    limits = seconds_of(older_than), bytes_of(max_bytes, "--max"), bytes_of(free, "--free")
    given = (("--older-than", older_than), ("--max", max_bytes), ("--free", free))
    for (option, text), value in zip(given, limits, strict=True):
        if text and value == 0:
            raise ArgumentError(
                f"{option} {text} is not above 0; to prune everything that may be pruned: --older-than 1s"
            )
    rules = PruneRules(kinds, *limits, keep)
    return None if rules.empty else rules


def seconds_of(text: str) -> float:
    """`30d` in seconds; 0 of an empty text.

    Raises:
        ArgumentError: it is not an age.
    """
    match = _AGE.fullmatch(text.strip())
    if text and match is None:
        raise ArgumentError(f"{text!r} is not an age; write 12h, 30d or 8w")
    return float(match[1]) * _SECONDS[match[2]] if match else 0.0


def bytes_of(text: str, option: str) -> int:
    """`100G` in bytes; 0 of an empty text.

    Raises:
        ArgumentError: it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if text and match is None:
        raise ArgumentError(f"{option} {text!r} is not a size; write 500M, 100G or 2T")
    return int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0


def _databases(state: Path, data_root: Path | None, asked: PruneRules | None) -> Iterator[_PrunedDatabase]:
    wanted = None if data_root is None else os.path.realpath(data_root)
    for entry in registry.entries(state):
        if wanted is not None and os.path.realpath(entry.data_root) != wanted:
            continue
        config = load_config(entry.config)
        if replicated_scope.wanted(entry, config):
            target = target_config.target(config, registry.folder(state))
            if asked is None and not config.agent.retention:
                known = "--older-than 30d, --max 200G or --free 100G (or set AGENT.retention)"
                raise ArgumentError(f"say what may be deleted: {known}")
            yield _PrunedDatabase(entry.data_root, target, asked or rules_of(config.agent, entry.data_root))


def _one(one: _PrunedDatabase, *, sha256: bool, apply: bool, as_json: bool) -> dict[str, Any]:
    done: list[Done] = []
    with closing(Pruner(find_places().state, one.root, one.target.name)) as pruner:
        plan = pruner.plan(one.rules, time.time())
        try:
            if apply and plan.chosen:
                with closing(one.target.open()) as session:
                    done.extend(pruner.carry_out(plan, session, deep=sha256))
        except RlaError:
            if done and not as_json:
                _say(one, plan, done, apply=apply)  # freed before the link broke
            raise
    if not as_json:
        _say(one, plan, done, apply=apply)
    gone = [entry for entry in done if not entry.stays]
    return {
        "data_root": one.root,
        "target": one.target.name,
        "kept": dict(plan.kept),
        "planned": [{"path": os.fsdecode(file.path), "bytes": file.size} for file in plan.chosen],
        "freed_bytes": sum(entry.size for entry in gone),
        "gone": [entry.path for entry in gone],
        "stayed": {entry.path: entry.stays for entry in done if entry.stays},
    }


def _say(one: _PrunedDatabase, plan: PrunePlan, done: list[Done], *, apply: bool) -> None:
    typer.echo(f"{printable(one.root)} → {shown_target(one.target.name)}")
    typer.echo(
        f"  files of these kinds take {size_text(plan.used_bytes)} here, {size_text(plan.free_bytes)} free"
    )
    if not apply:
        for file in plan.chosen[:SHOWN]:
            typer.echo(f"  {size_text(file.size):>10}  {printable(os.fsdecode(file.path))}")
        if len(plan.chosen) > SHOWN:
            typer.echo(f"  … and {len(plan.chosen) - SHOWN} more")
        then = "; nothing was done: add --apply" if plan.chosen else ""
        typer.echo(f"  would free {size_text(plan.bytes)} in {len(plan.chosen)} file(s){then}")
        _say_more(plan)
        return
    gone = [entry for entry in done if not entry.stays]
    typer.echo(f"  freed {size_text(sum(entry.size for entry in gone))} in {len(gone)} file(s)")
    _say_more(plan)
    for entry in done:
        if entry.stays:
            typer.echo(f"  stays: {printable(entry.path)}: {entry.stays}", err=True)


def _say_more(plan: PrunePlan) -> None:
    if plan.kept:
        reasons = sorted(plan.kept.items(), key=lambda entry: -entry[1])
        typer.echo("  kept: " + ", ".join(f"{reason} {count}" for reason, count in reasons))
    if len(plan.chosen) == MAX_AT_ONCE:
        typer.echo(f"  {MAX_AT_ONCE} files at most are pruned at once: run it again for more")
