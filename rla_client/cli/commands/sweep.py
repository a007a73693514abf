"""`rla sweep`: hyper-parameter sweeps."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup

from rla_client.cli.options import AsJson, DataRoot
from rla_client.cli.output import print_done, say
from rla_client.cli.registration import BEGIN, add_command
from rla_client.cli.sweep_drive import POLL_S, OnInterrupt, drive
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.spelling import unknown
from rla_client.database.text.machine_text import json_text

if TYPE_CHECKING:
    from rla_client.sweep.journal import Journal


STOP_TIMEOUT_S = 60.0
MOST_ROWS = 20
Engine: TypeAlias = Literal["local", "slurm", "ray"]
Name = Annotated[str | None, typer.Argument(help="Name of the sweep; default: the newest.")]
On = Annotated[Engine, typer.Option("--on", help="Where the runs run.")]
Interrupt = Annotated[OnInterrupt, typer.Option("--on-interrupt", help="What Ctrl-C does to live runs.")]
Failed = Annotated[bool, typer.Option("--failed", help="Also restart failed runs.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(
        cls=SweepGroup,
        no_args_is_help=True,
        context_settings={"ignore_unknown_options": True},  # `rla sweep --failed FILE`
        help="Run a program many times, each time with other hyper-parameters.\n\n"
        "`rla sweep FILE` starts the sweep that a YAML file describes, or continues it: finished runs are "
        "skipped, killed runs continue from their checkpoint.",
        epilog=examples("rla sweep lr.yaml --on slurm", "rla sweep status lr"),
    )
    add_command(group, start, None, "rla sweep start lr.yaml", "rla sweep start lr.yaml --on slurm")
    add_command(group, status, None, "rla sweep status", "rla sweep status lr --all")
    add_command(group, stop, None, "rla sweep stop lr", "rla sweep stop lr --leave")
    lines = ("rla sweep resume lr", "rla sweep resume lr --failed")
    add_command(group, resume_sweep, None, *lines, name="resume")
    app.add_typer(group, name="sweep", rich_help_panel=BEGIN)


class SweepGroup(TyperGroup):
    """`rla sweep FILE` is `rla sweep start FILE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - of click
        """Put `start` before the name of a file."""
        if args and args[0] not in self.commands:
            args = ["start", *args]
        return super().resolve_command(ctx, args)


def start(
    file: Annotated[Path, typer.Argument(help="A YAML file: the command, and the values to try.")],
    on: On = "local",
    interrupt: Interrupt = "ask",
    failed: Failed = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Start the sweep that a file describes, or continue it."""
    from rla_client.sweep.driver_setup import find_root

    if not file.exists():
        files: list[str] = []
        with suppress(OSError):
            files = [str(path) for path in file.parent.iterdir() if path.suffix in {".yaml", ".yml"}]
        verbs = ("start", "status", "stop", "resume")
        raise unknown(str(file), [*files, *verbs], f"there is neither a file nor a command {str(file)!r}")
    drive(file, find_root(data_root), on, interrupt, failed=failed, as_json=as_json)


def resume_sweep(
    name: Name = None,
    on: Annotated[
        Engine | None, typer.Option("--on", help="Where the runs run; default: as last time.")
    ] = None,
    interrupt: Interrupt = "ask",
    failed: Failed = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Continue a sweep with the file that it was last started with."""
    from rla_client.sweep.journal import FILE

    journal = _find(name, data_root)
    engines = [run.engine for run in journal.runs.values() if run.engine]
    by = on or (engines[-1] if engines else "local")
    file = journal.folder / FILE
    drive(file, journal.data_root, by, interrupt, name=journal.name, failed=failed, as_json=as_json)


def status(
    name: Name = None,
    everything: Annotated[bool, typer.Option("--all", help="List all runs, not only the first 20.")] = False,
    as_json: AsJson = False,
    data_root: DataRoot = None,
) -> None:
    """Show the progress of a sweep."""
    from rla_client.sweep import results, sweep_table
    from rla_client.sweep.driver_setup import kept_spec

    journal = _find(name, data_root, own=False)
    metric = kept_spec(journal).metric
    values = results.MetricValues(journal, metric)
    rows, best = sweep_table.rows(values, time.time()), results.best_trials(values)
    driver, undecided = journal.driver(), results.undecided(values)
    if as_json:
        facts = {
            "name": journal.name,
            "driver": driver,
            "counts": sweep_table.shown_counts(journal),
            "runs": [{**row, "reasons": journal.runs[row["run"]].reasons} for row in rows],
            "best": best,
            "too_few_seeds": None
            if undecided is None
            else {**asdict(undecided[2]), "best": undecided[0], "next": undecided[1]},
        }
        say(json_text(facts))
        return
    say(sweep_table.summary(journal, driver))
    if best:
        say(f"\nbest trials by {metric.name if metric else ''}")
        say(sweep_table.table(best, results.MOST_BEST))
    if undecided is not None:
        say(undecided[2].sentence(f"trial {undecided[0]}", f"trial {undecided[1]}"))
    missing = None if best else results.no_metric(journal, metric)
    if missing:
        say(f"\n{missing}")
    say("")
    say(sweep_table.table(rows, None if everything else MOST_ROWS))
    for reason in sweep_table.reasons(journal):
        say(reason)


def stop(
    name: Name = None,
    leave: Annotated[
        bool, typer.Option("--leave", help="Start no more runs, but let live ones finish.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Stop a sweep and its runs; `resume` continues them from their checkpoints."""
    from rla_client.sweep.driver import LEAVE, STOP
    from rla_client.sweep.journal import SweepError
    from rla_client.sweep.run_state import STOPPED

    journal = _find(name, data_root)
    if journal.driver() is None:
        stopped = None if leave else _stop_left(journal)
        if stopped is None:
            text = f"nobody drives the sweep {journal.name}"
        elif stopped:
            runs, verb = ("run", "was") if stopped == 1 else ("runs", "were")
            text = f"{stopped} {runs} left by an earlier driver {verb} stopped"
        else:
            text = f"the runs that an earlier driver of {journal.name} left had ended already"
        facts = {"name": journal.name, "ended": stopped is not None, "stopped": stopped or 0}
        print_done(facts, text, as_json=as_json)
        return
    journal.request(LEAVE if leave else STOP)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while journal.driver() is not None:
        if time.monotonic() > deadline:
            raise SweepError(
                f"the sweep {journal.name} has not ended after {STOP_TIMEOUT_S:.0f} s; it was asked to"
            )
        time.sleep(POLL_S)
    stopped = sum(run.state == STOPPED for run in journal.read().runs.values())
    text = f"the sweep {journal.name} has ended; `rla sweep resume {journal.name}` continues it"
    print_done({"name": journal.name, "ended": True, "stopped": stopped}, text, as_json=as_json)


def _stop_left(journal: Journal) -> int | None:
    """Stop runs without a driver; returns their number, None if no run is noted as running."""
    from rla_client.sweep.driver import Driver
    from rla_client.sweep.driver_setup import kept_spec, make_engine
    from rla_client.sweep.run_state import RUNNING
    from rla_client.sweep.samplers import Listed

    left = [run.engine for run in journal.runs.values() if run.state == RUNNING]
    if not left:
        return None
    spec = kept_spec(journal)
    journal.hold()
    try:
        return Driver(journal, spec, make_engine(left[0], spec, journal), Listed()).stop_left()
    finally:
        journal.release()


def _find(name: str | None, data_root: Path | None, *, own: bool = True) -> Journal:
    from rla_client.sweep.driver_setup import find_root
    from rla_client.sweep.journal import Journal, SweepError, names

    root = find_root(data_root)
    if name is None:
        known = names(root)
        if not known:
            raise SweepError(f"{root} has no sweep yet\nhint: `rla sweep FILE` starts one")
        name = known[0]
    journal = Journal(root, name).read()
    if own:
        journal.check_own()
    return journal
