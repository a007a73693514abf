"""`rla init`, `sweep`, `resume`, `restore-code`, `rerun`: runs begin, and begin again.

`init` prepares a project. A sweep is many runs of one program, each with other hyper-parameters. The other
commands are for runs of wrap_experiment: such a run is a folder (`data/local/experiment/...`, or an item's
log folder), or a RUN of the database as the other commands take it.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rla_client.cli.options import (
    BEGIN,
    AsJson,
    DataRoot,
    TableOption,
    add_command,
    open_database,
    print_done,
    say,
    say_aside,
    teller,
)
from rla_client.config.project import CONFIG_NAME, DATA_FOLDER
from rla_client.config.schema import template_text
from rla_client.contract.errors import ArgumentError, LaunchError, RlaError
from rla_client.contract.layout import LOG
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.spelling import unknown
from rla_client.database.text.machine_text import json_text
from rla_client.database.text.safe_text import clean

if TYPE_CHECKING:
    from typing_extensions import Self

    from rla_client.sweep.driver import Driver
    from rla_client.sweep.journal import Journal
    from rla_client.sweep.spec import Spec

STOP_TIMEOUT_S = 60.0
DRAW_S = 1.0
DRAW_SHARE = 20  # times as long as drawing takes, nothing is drawn: it must not hold up the runs
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
POLL_S = 0.1
MOST_ROWS = 20
EXIT_FAILED, EXIT_LEFT = 1, 3

Name = Annotated[str | None, typer.Argument(help="Name of the sweep; default: the newest.")]
On = Annotated[str, typer.Option("--on", help="Where the runs run: local, slurm or ray.")]
Interrupt = Annotated[
    str, typer.Option("--on-interrupt", help="What Ctrl-C does to live runs: ask, leave or stop.")
]
Failed = Annotated[bool, typer.Option("--failed", help="Also restart failed runs.")]
Experiment = Annotated[
    str,
    typer.Argument(
        metavar="DIR_OR_RUN", help="The run's folder, its index, a unique part of that, or @last."
    ),
]


class _Group(TyperGroup):
    """`rla sweep FILE` is `rla sweep start FILE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - of click
        if args and args[0] not in self.commands:
            args = ["start", *args]
        return super().resolve_command(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        cls=_Group,
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
    add_command(app, init, BEGIN, "rla init", "rla init YOUR_PROJECT")
    app.add_typer(group, name="sweep", rich_help_panel=BEGIN)
    lines = ("rla resume @last", "rla resume data/local/experiment/ppo --from-epoch 10")
    add_command(app, resume, BEGIN, *lines)
    lines = ("rla restore-code @last ../then", "rla restore-code data/local/experiment/ppo ../then")
    add_command(app, restore_code, BEGIN, *lines, name="restore-code")
    add_command(app, rerun, BEGIN, "rla rerun @last", "rla rerun @last ../again")


# -- a project -----------------------------------------------------------------------------------


def init(
    folder: Annotated[
        Path, typer.Argument(help="The project's folder, made where it is missing.", show_default=False)
    ] = Path(),
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
    """Make `folder`, new or not, a project whose database is `data` below it; a line for each thing done.

    Raises:
        ArgumentError: it is a file, or has an rla_config.yaml already; nothing was changed.
    """
    done = []
    if not os.path.lexists(folder):
        folder.mkdir(parents=True)
        done.append(f"made the folder {folder}")
    elif not folder.is_dir():
        raise ArgumentError(f"{folder} is a file, not a folder")
    config = folder / CONFIG_NAME
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(template_text())
    except FileExistsError:
        raise ArgumentError(
            f"{config} is there already and was not touched; delete it first for a fresh one"
        ) from None
    done.append(f"wrote {config}")
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


# -- sweeps --------------------------------------------------------------------------------------


def start(
    file: Annotated[Path, typer.Argument(help="A YAML file: the command, and the values to try.")],
    on: On = "local",
    interrupt: Interrupt = "ask",
    failed: Failed = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Start the sweep that a file describes, or continue it."""
    from rla_client.sweep.driver import find_root

    if not file.exists():
        files: list[str] = []
        with suppress(OSError):
            files = [str(path) for path in file.parent.iterdir() if path.suffix in {".yaml", ".yml"}]
        verbs = ("start", "status", "stop", "resume")
        raise unknown(str(file), [*files, *verbs], f"there is neither a file nor a command {str(file)!r}")
    _drive(file, find_root(data_root), on, interrupt, failed=failed, as_json=as_json)


def resume_sweep(
    name: Name = None,
    on: Annotated[
        str | None, typer.Option("--on", help="local, slurm or ray; default: as last time.")
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
    _drive(file, journal.data_root, by, interrupt, name=journal.name, failed=failed, as_json=as_json)


def status(
    name: Name = None,
    everything: Annotated[bool, typer.Option("--all", help="List all runs, not only the first 20.")] = False,
    as_json: AsJson = False,
    data_root: DataRoot = None,
) -> None:
    """Show the progress of a sweep."""
    from rla_client.database.compare.best_group import told
    from rla_client.sweep import results as view
    from rla_client.sweep.driver import kept_spec

    journal = _find(name, data_root, own=False)
    metric = kept_spec(journal).metric
    values = view.Values(journal, metric)
    rows, best = view.rows(values, time.time()), view.best(values)
    driver, choice = journal.driver(), view.choice(values)
    if as_json:
        facts = {
            "name": journal.name,
            "driver": driver,
            "counts": view.shown_counts(journal),
            "runs": [{**row, "reasons": journal.runs[row["run"]].reasons} for row in rows],
            "best": best,
            "choice": None if choice is None else {**asdict(choice[1]), "best": choice[0]},
        }
        say(json_text(facts))
        return
    say(view.summary(journal, driver))
    if best:
        say(f"\nbest trials by {metric.name if metric else ''}")
        say(view.table(best, view.MOST_BEST))
    for line in told(choice[1], f"trial {choice[0]}") if choice else ():
        say(line)
    missing = None if best else view.no_metric(journal, metric)
    if missing:
        say(f"\n{missing}")
    say("")
    say(view.table(rows, None if everything else MOST_ROWS))
    for reason in view.reasons(journal):
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
    from rla_client.sweep.journal import STOPPED, SweepError

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
    """Stop runs that have no driver; how many were stopped, None where none is noted as running."""
    from rla_client.sweep.driver import Driver, Listed, kept_spec, make_engine
    from rla_client.sweep.journal import RUNNING

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
    from rla_client.sweep.driver import find_root
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


def _drive(
    file: Path, root: Path, on: str, interrupt: str, *, name: str | None = None, failed: bool, as_json: bool
) -> None:
    from rla_client.sweep.driver import ENGINES, LEAVE, begin
    from rla_client.sweep.journal import OVER
    from rla_client.sweep.results import no_metric, shown_counts

    if on not in ENGINES:
        raise unknown(on, ENGINES, f"there is no engine {on!r}")
    if interrupt not in {"ask", "leave", "stop"}:
        raise unknown(interrupt, ("ask", "leave", "stop"), f"--on-interrupt knows no {interrupt!r}")
    shown = _Shown(as_json=as_json)
    journal, spec, driver = begin(file, root, on, name=name, failed=failed, on_look=shown.look)
    if name is None and journal.begun_in != os.getcwd():  # `resume` asks for that sweep by its name
        say_aside(f"(the sweep {journal.name} was begun in {journal.begun_in}, where its runs work)")
    try:
        with shown, _signals(driver, interrupt, shown):
            driver.run()
    finally:
        journal.release()
    counts = shown_counts(journal)
    text = " ".join(f"{count} {state}" for state, count in counts.items() if count)
    missing = no_metric(journal, spec.metric, wait=True)
    print_done({"name": journal.name, "counts": counts}, text, as_json=as_json)
    if missing:
        say_aside(missing)
    left = [run for run in journal.runs.values() if run.state not in OVER]
    if left:
        what = "live runs continue; " if driver.asked == LEAVE and on != "ray" else ""
        say_aside(f"{what}`rla sweep resume {journal.name}` continues the sweep")
        raise typer.Exit(EXIT_LEFT)
    if any(run.state == "failed" for run in journal.runs.values()):
        say_aside(f"`rla sweep status {journal.name}` shows why")
        say_aside(f"`rla sweep resume --failed {journal.name}` starts them again")
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _signals(driver: Driver, interrupt: str, shown: _Shown) -> Iterator[None]:
    """Ctrl-C and SIGTERM become requests to the driver."""
    from rla_client.sweep.driver import LEAVE, STOP

    asks = interrupt == "ask" and sys.stdin.isatty() and sys.stdout.isatty()

    def ask() -> None:
        shown.pause()
        typer.echo("\n[l]eave the runs going, [s]top them, or [g]o on: ", nl=False, err=True)
        driver.asked = {"l": LEAVE, "s": STOP}.get(_typed().strip().lower()[:1], "")
        shown.question = None
        shown.go_on()

    def handle(number: int, _frame: object) -> None:
        if driver.asked or shown.question is not None:  # once more: at once
            raise KeyboardInterrupt
        if number == signal.SIGINT and asks:
            shown.question = ask  # at the next look: a handler may come in the middle of what prints
        else:
            driver.asked = LEAVE if interrupt == "leave" else STOP

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, one in former.items():
            signal.signal(number, one)


def _typed() -> str:
    """A line from the terminal; a signal is handled within `POLL_S`, where readline may sleep on."""
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        pass
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line


class _Shown:
    """The live table on a terminal; elsewhere a line whenever a run's state changes.

    Attributes:
        question: what is to be asked on the terminal at the next look, and while it is asked.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._tell = teller(as_json=as_json)
        self._as_json = as_json
        self.question: Callable[[], None] | None = None
        self._live: Any = None
        self._values: Any = None
        self._journal: Journal | None = None
        self._next = 0.0
        self._states: dict[int, str] = {}
        self._draw: Callable[[], str] = str

    def __enter__(self) -> Self:
        if sys.stdout.isatty() and not self._as_json:
            from rich.live import Live
            from rich.text import Text

            self._live = Live(
                get_renderable=lambda: Text(self._draw(), no_wrap=True), auto_refresh=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        if self._live is None and self._journal is not None:
            self._say_changes(self._journal)

    def pause(self) -> None:
        """Leave the terminal to something else."""
        if self._live is not None:
            self._live.stop()

    def go_on(self) -> None:
        """Draw again."""
        if self._live is not None:
            self._live.start()

    def look(self, journal: Journal, spec: Spec) -> None:
        """Show what is new; not at each end of a short run."""
        self._journal = journal
        if self.question is not None:
            self.question()
        began = time.monotonic()
        if began < self._next:
            return
        if self._live is None:
            self._say_changes(journal)
        else:
            self._draw = lambda: self._table(journal, spec)
            self._live.refresh()
        now = time.monotonic()
        self._next = now + max(DRAW_S, DRAW_SHARE * (now - began))

    def _say_changes(self, journal: Journal) -> None:
        from rla_client.sweep.results import QUEUED

        for number, run in journal.runs.items():
            state = QUEUED if journal.is_queued(run) else run.state
            if self._states.get(number, "waiting") != state:
                given = " ".join(f"{name}={value}" for name, value in run.parameters.items())
                why = f": {run.reason}" if run.state in {"failed", "waiting"} and run.reason else ""
                self._tell(clean(f"run {number} {state}  {given}{why}"))
                self._states[number] = state
        sys.stdout.flush()

    def _table(self, journal: Journal, spec: Spec) -> str:
        from rla_client.sweep import results as view

        if self._values is None:
            self._values = view.Values(journal, spec.metric)
        rows, best = view.rows(self._values, time.time()), view.best(self._values)[:1]
        parts = [view.summary(journal, 0)]
        parts += [clean(f"best: {' '.join(f'{k}={v}' for k, v in best[0].items())}")] if best else []
        room = max(shutil.get_terminal_size().lines - len(parts) - 4, 3)
        return "\n".join([*parts, "", view.table(rows, room)])


# -- runs of wrap_experiment ---------------------------------------------------------------------


def resume(
    run: Experiment,
    from_epoch: Annotated[
        str, typer.Option("--from-epoch", metavar="N", help="Epoch of the snapshot, or first, or last.")
    ] = "last",
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Continue an interrupted run of a launcher (`wrap_experiment`): same folder, same rows.

    Other runs continue when their command is run again: RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND.
    """
    from rla_client.launcher import relaunch

    raise typer.Exit(relaunch.resume(_log_dir(run, table, data_root), from_epoch))


def restore_code(
    run: Experiment,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the code.")],
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Restore the code that a run was started from; of a launcher's run every file is checked by its hash."""
    from rla_client.launcher import relaunch

    log_dir = _log_dir(run, table, data_root)
    if not relaunch.is_of_launcher(log_dir):
        copied = relaunch.copy_code(log_dir, folder)
        facts = {"file": str(folder), "files": copied, "left_out": {}}
        print_done(facts, f"{copied} files in {folder}, the copy that the run keeps", as_json=as_json)
        return
    manifest = relaunch.restore_code(log_dir, folder)
    left = sorted(manifest.left_out.items())
    lines = [f"{len(manifest.files)} files in {folder}, each all hashes as recorded"]
    lines += [f"not archived: {name} ({why})" for name, why in left]
    facts = {"file": str(folder), "files": len(manifest.files), "left_out": dict(left)}
    print_done(facts, "\n".join(lines), as_json=as_json)


def rerun(
    run: Experiment,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A new folder for code and run; default: <run>-rerun beside the run or, for items, in "
            "local/rerun of the database.",
        ),
    ] = None,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Run the same code and parameters again and compare the curves (exit code 1: they differ)."""
    from rla_client.launcher import relaunch
    from rla_client.launcher.experiment_database import ItemPlace
    from rla_client.launcher.experiment_folder import RERUN_FOLDER, claim_folder

    log_dir = _log_dir(run, table, data_root)
    # beside a plain run: data/local is not part of later archives; not among a database's items, nor
    # here, where the folder would be taken for code of the project
    place = ItemPlace.of(log_dir)
    base = log_dir.parent if place is None else Path(place.data_root, *RERUN_FOLDER)
    wanted = folder or base / f"{log_dir.name[:100]}-rerun"
    target = claim_folder(wanted, existing=folder is not None)
    compared = relaunch.rerun(log_dir, target)
    first, second = compared.rows
    equal = compared.equal
    said = f"equal: {first} rows, time columns aside"
    said = said if equal else f"different: {first} rows then, {second} now"
    lines = [f"{said}; the repeated run is in {target}"]
    for row, column, then, now in () if equal else compared.differences:
        lines.append(f"  row {row}, {column}: {then} then, {now} now")
    names = ("row", "column", "then", "now")
    differences = [dict(zip(names, one, strict=True)) for one in compared.differences]
    facts = {"equal": equal, "rows": [first, second], "file": str(target), "differences": differences}
    print_done(facts, "\n".join(lines), as_json=as_json)
    if not equal:
        raise typer.Exit(1)


def _log_dir(reference: str, table: str | None, data_root: Path | None) -> Path:
    folder = Path(reference)
    if folder.is_dir():
        return folder.absolute()
    try:
        database = open_database(data_root)
    except RlaError as error:
        raise LaunchError(f"there is no folder {reference}, and for a run of a database: {error}") from error
    return Path(database.find(reference, table).folder(LOG))
