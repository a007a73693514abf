"""`rla samples`: samples of a run of a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import MOST_SHOWN, Archived, AsCsv, AsJson, DataRoot, RunArgument, TableOption
from rla_client.cli.output import print_rows, say, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.layout import SAMPLES
from rla_client.database.tree.run_names import shown_name

if TYPE_CHECKING:
    from rla_client.database.samples.samples_of_run import Samples

FIRST = ("id", "step", "role", "name", "group", "reward")  # columns of the list before the texts
TEXTS = ("prompt", "completion")
BETWEEN_BYTES = 120  # longest line between two samples


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "rla samples --step 100 --sort reward -n 10",
        'rla samples --where "reward <= 0" --grep sorry --text',
    )
    add_command(app, samples, LOOK, *lines)


def samples(
    run: RunArgument = "@last",
    *,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", "-w", help="Only samples that match, e.g. \"reward < 0 and finish == 'length'\"."
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", help="Order by this column, the least first; -COLUMN: the greatest."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_SHOWN, help="At most this many.")
    ] = 20,
    step: Annotated[
        str | None, typer.Option("--step", help="Only of these time-steps: 100, 100:200, 100: or :200.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", help="Only those that contain this text; small letters match capitals."),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only completions of this prompt.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only those logged under this name.")] = None,
    only: Annotated[str | None, typer.Option("--id", help="The sample with this id.")] = None,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="ID", help="Show how the completions differ from this one's."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print each sample whole.")] = False,
    table: TableOption = None,
    archived: Archived = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List samples of a run (prompts, completions, rewards), as log_samples kept them."""
    from rla_client.contract.item.prune_notes import pruned_files

    database = open_database(data_root, archived=archived)
    found = database.find(run, table)
    every = found.samples()
    chosen = every.where(where, step=step, group=group, name=name, grep=grep)
    if only is not None:
        chosen = every.where(f"id == {only!r}") if len(every) else every
    if sort is not None:
        chosen = chosen.sort(sort)
    shown = chosen.head(limit)
    machine = as_json or as_csv
    if as_json:
        _print_json(shown)
    elif diff is not None:
        _print_diffs(shown, every.find(diff))
    elif text:
        _print_texts(shown)
    else:
        _print_list(shown, [*([sort.removeprefix("-")] if sort else []), *_asked(where)], as_csv=as_csv)
    if not machine:
        left_out = sum(every.index.left_out.values())
        more = f"; {left_out} more were left out (SAMPLES in rla_config.yaml)" if left_out else ""
        who = shown_name(found.table, found.index)
        if not every.index.unread and (away := pruned_files(found.folder(SAMPLES))):
            say_aside(
                f"{len(away)} file(s) of its samples are on the master alone; "
                f"to fetch them: rla-agent transfer fetch '{found.folder(SAMPLES)}'"
            )
        if not len(every):
            say_aside(f"{who} has no samples; those of another run: rla samples RUN{more}")
        elif not len(chosen):
            say_aside(f"none of the {len(every)} samples of {who} match{more}")
        else:
            say_aside(f"({len(shown)} of {len(chosen)} that match, {len(every)} samples of {who}{more})")


def _print_json(shown: Samples) -> None:
    from rla_client.database.text.machine_text import json_text

    say(json_text(list(shown)))


def _print_texts(shown: Samples) -> None:
    from rla_client.database.samples.sample_text import sample_text
    from rla_client.database.text.safe_text import lines_text
    from rla_client.database.text.text_tables import width

    for number, row in enumerate(shown):
        if number:
            say("=" * min(width(), BETWEEN_BYTES))
        say(lines_text(sample_text(row)))


def _print_diffs(shown: Samples, other: Mapping[str, Any]) -> None:
    from rla_client.database.samples.sample_text import cell_text
    from rla_client.database.samples.word_diff import diff_text, word_diff
    from rla_client.database.text.safe_text import lines_text

    old = cell_text(other.get("completion", ""))
    for row in shown:
        if row["id"] == other["id"]:
            continue
        for sign, one in (("---", other), ("+++", row)):
            say(f"{sign} {one['id']}, step {one['step']}, reward {cell_text(one.get('reward'))}")
        say(lines_text(diff_text(word_diff(old, cell_text(row.get("completion", ""))))))


def _print_list(shown: Samples, asked: Sequence[str], *, as_csv: bool) -> None:
    columns = shown.index.columns
    names = [name for name in FIRST if name in columns and _is_informative(columns[name], name)]
    if as_csv:
        names = [*names, *(name for name in columns if name not in {*names, *TEXTS})]
    names += [name for name in asked if name in columns and name not in {*names, *TEXTS}]
    names += [name for name in TEXTS if name in columns]
    rows = [[columns[name][row] for name in names] for row in shown.rows]
    if not as_csv:  # a CSV cell keeps its lines
        rows = [[" ".join(cell.split()) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if rows or as_csv:
        print_rows(names, rows, as_json=False, as_csv=as_csv)


def _is_informative(column: Sequence[object], name: str) -> bool:
    """Whether a column is worth printing; a single role or name for all samples is not."""
    return name not in {"role", "name"} or len(set(column)) > 1


def _asked(where: str | None) -> list[str]:
    from rla_client.database.filter.filter_language import Where

    return sorted(Where(where).names) if where else []
