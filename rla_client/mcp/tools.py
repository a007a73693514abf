"""Tools of an assistant over one database.

Each method of `Tools` is a tool; the assistant reads its docstring. Filters and names are those of the
command line.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import CODE, LOG
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.spelling import listed
from rla_client.database.clock import clock
from rla_client.database.compare.best_group import less_is_better, too_few_seeds
from rla_client.database.compare.code_diff import code_differences
from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.compare.groups import group_name, group_runs
from rla_client.database.compare.mean_interval import mean_and_interval
from rla_client.database.compare.run_differences import differing_keys, run_differences
from rla_client.database.filter.name_completion import full_metrics, full_names
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.records.row_view import RowView
from rla_client.database.resumed_parameters import changes_text, resumed_with
from rla_client.database.run_parts import parts_of
from rla_client.database.samples.sample_text import sample_text
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean, lines_text
from rla_client.database.text_logs import last_lines, log_path
from rla_client.database.traceback_end import traceback_end
from rla_client.mcp.answers import MAX_CHARS, NOTE_CHARS, bounded, cell, pairs, table
from rla_client.samples.cells import shortened

if TYPE_CHECKING:
    from rla_client.database.compare.groups import Group
    from rla_client.database.database import Database
    from rla_client.database.records.record import Record


MOST_ROWS = 200
MAX_OFFSET = 1 << 40  # larger than any database, and within SQLite's integers
MOST_COLUMNS = 12  # of a table of runs, by default
MOST_CURVES = 8  # columns of a table of curves
MOST_RUNS_OF_CURVES = 2000  # read for one answer
MOST_POINTS = 100
MOST_LINES = 200
LINE_CHARS = 300
SEARCHED_BYTES = 4 << 20  # of the end of a log
LEAST_SAMPLE_CHARS = 600  # of each sample, if several are shown with all texts
CUT_CHARS = 50  # for the note about a cut
SQL_S = 30.0
MOST_SQL_BYTES = 32 << 20  # of rows, of which an answer holds far less


class Tools:
    """The tools over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def overview(self) -> str:
        """Tables of the database, with their runs by state; parameters and metrics of the newest run.

        Call this first: it lists the names that the other tools take.
        """
        records = self._database.records(light=True)
        if not records:
            return "no runs yet"
        now = clock()
        rows = []
        for name in dict.fromkeys(record.table for record in reversed(records)):
            mine = [record for record in records if record.table == name]
            states = Counter(record.shown_state(now) for record in mine)
            rows.append([name, len(mine), _states(states), mine[-1].date])
        newest = self._database.find("@last").record
        parts = [
            table(["table", "runs", "states", "newest"], rows[:MOST_ROWS]),
            f"parameters of the newest: {_listed(newest.hyper.flat())}",
            f"metrics of the newest: {_listed(newest.metrics)}",
            f"metric that is most likely meant: {cell(likely_of(records))}",
        ]
        return bounded("\n".join(parts), "compare and runs take a table")

    def runs(
        self,
        *,
        where: str | None = None,
        table_name: str | None = None,
        since: str | None = None,
        columns: list[str] | None = None,
        sort: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> str:
        """List runs, the newest first, as CSV.

        Args:
            where: filter over fields, parameters and last values of metrics, such as
                lr == 0.001 and state in ['failed', 'killed'] and `eval/return` > 100 (odd names: backticks).
            table_name: only this task table.
            since: a date or an age: 2026/11/21, 36h, 7d.
            columns: fields, parameters, metrics; default: state, step, time taken, the likely metric and the
                parameters in which these runs differ.
            sort: column to sort by, the largest first; -NAME for the smallest first.
            limit: at most 200.
            offset: runs to skip.
        """
        limit, offset = min(max(limit, 1), MOST_ROWS), min(max(offset, 0), MAX_OFFSET)
        early = limit + offset if where is None and sort is None else None
        records = self._database.records(table_name, where, since, early)[::-1]
        every = len(records) if early is None else self._database.count(table_name, since)
        if not records:
            return "no runs match"
        now = clock()
        if sort is not None:
            records = _sorted(records, sort, now)
        shown = records[offset : offset + limit]
        if not shown:
            return f"only {every} runs match"
        names = _full(columns, records) if columns else _usual_columns(shown)
        rows = [[_shown(RowView(record, now), name) for name in names] for record in shown]
        last = offset + len(shown)
        more = f"{offset + 1} to {last} of {every} runs; offset={last} for more" if last < every else ""
        return table(names, rows, [more])

    def compare(
        self,
        *,
        by: list[str],
        metric: str | None = None,
        where: str | None = None,
        table_name: str | None = None,
        since: str | None = None,
        minimize: bool | None = None,
        limit: int = 20,
    ) -> str:
        """Group runs by parameters and rank the groups by the mean of a metric's last values, the best first.

        The answer for "which lr is best over seeds": by=["lr"]. Gives runs, mean, half of its 95 % interval
        (Student's t), least and largest value of each group, whether there are enough seeds to choose the
        first one, and what to report of it.

        Args:
            by: parameters or fields (table, host, state).
            metric: default: the return, reward, score, … that most runs have.
            where: filter, see runs.
            table_name: only this task table.
            since: a date or an age.
            minimize: small values are good; default: by the metric's name (loss, error, …).
            limit: groups, at most 200.
        """
        records = self._database.records(table_name, where, since)
        if not records:
            return "no runs match"
        by = _full(by, records)
        chosen, *others = _metrics(metric, records)
        if others:
            raise ArgumentError(
                f"{metric!r} is a metric of several writers\nhint: {listed([chosen, *others])}"
            )
        minimize = less_is_better(chosen) if minimize is None else minimize
        groups = group_runs(records, by, chosen, clock())
        found = too_few_seeds(groups, by, minimize=minimize)
        notes = [f"{'least' if minimize else 'largest'} mean of the last {chosen} first"]
        if found is not None:
            notes.append(found.sentence(*(group_name(by, groups[at]) for at in (found.best, found.next))))
        ranked = sorted(groups, key=lambda group: _rank(group, minimize=minimize))
        shown = ranked[: min(max(limit, 1), MOST_ROWS)]
        if len(shown) < len(ranked):
            notes.append(f"{len(shown)} of {len(ranked)} groups; a higher limit shows more")
        names = [*by, "runs", "states", chosen, "ci95", "least", "largest"]
        return table(names, [_group_row(group) for group in shown], notes)

    def run(self, run: str = "@last", table_name: str | None = None) -> str:
        """Describe one run: state, parameters, last values, tags, note, cause of a failure.

        Args:
            run: its index, a unique part of it, tracked parameters (lr=0.1&seed=3), or @last.
            table_name: only this task table.
        """
        found = self._database.find(run, table_name)
        record, folder = found.record, found.folder(LOG)
        kinds = ", ".join(record.kinds)
        about = {
            "run": record.index, "table": record.table, "state": found.state, "host": record.host,
            "began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.opened)),
            "took": duration_text(record.duration_s), "step": plain(record.time_step),
            "name": record.display_name or None, "tags": list(record.tags) or None,
            "note": record.note or None,
            "reason": record.told.get("reason"), "parts": "; ".join(parts_of(record, clock())) or None,
            "continues": record.parent or None, "has": kinds,
            "last checkpoint": next((path.name for path in found.checkpoints[::-1]), None),
        }  # fmt: skip
        lines = [f"{name}: {cell(value)}" for name, value in about.items() if value is not None]
        lines += ["parameters:", *pairs(record.hyper.flat(), MOST_ROWS)]
        resumes = resumed_with(folder)
        lines += ["changed when it was resumed:", *pairs(changes_text(resumes), MOST_ROWS)] if resumes else []
        lines += ["last values:", *pairs(record.metrics, MOST_ROWS)]
        lines += [f"problem: {cell(problem)}" for problem in record.problems]
        traceback = traceback_end(folder, found.state)
        lines += ["traceback:", lines_text(traceback)] if traceback else []
        return bounded("\n".join(lines), "sql over params and last picks some of them")

    def samples(
        self,
        run: str = "@last",
        *,
        where: str | None = None,
        step: str | None = None,
        sort: str | None = None,
        grep: str | None = None,
        group: str | None = None,
        id: str | None = None,  # noqa: A002 - as the column is called
        limit: int = 10,
        whole: bool = False,
    ) -> str:
        """List samples of a language model's run (prompts, completions, rewards), or show some whole.

        Args:
            run: a run, see run.
            where: filter over the samples' columns, such as reward < 0 and finish == 'length'.
            step: a time-step, or a range: 100:200, 100:, :200.
            sort: column to sort by, the smallest first; -NAME for the largest first.
            grep: only samples with this text.
            group: only completions of this prompt (the column group).
            id: one sample.
            limit: at most 200.
            whole: all texts of each sample, cut in the middle if the answer has no room; else the first 80
                characters.
        """
        found = self._database.samples(run)
        closed = [f"left out, as this user may not read it: {path}" for path in found.index.unread]
        if not len(found):
            return "\n".join(["the run has no samples", *closed])
        chosen = found.where(where, step=step, group=group, grep=grep)
        if id is not None:
            chosen = found.where(f"id == {id!r}")
        chosen = chosen.sort(sort) if sort else chosen
        most = (MAX_CHARS - NOTE_CHARS) // LEAST_SAMPLE_CHARS if whole else MOST_ROWS
        shown = chosen.head(min(max(limit, 1), most))
        note = f"{len(shown)} of {len(chosen)} samples that match, of {len(found)}"
        note = "\n".join([note, *closed])
        if whole:
            room = (MAX_CHARS - NOTE_CHARS) // max(len(shown), 1) - CUT_CHARS
            texts = [lines_text(sample_text(row)) for row in shown]
            texts = [text if len(text) <= room else shortened(text, room) for text in texts]
            return bounded("\n\n".join([note, *texts]), "a smaller limit or one id shows a sample whole")
        columns = found.index.columns
        names = list(columns)[:MOST_COLUMNS]
        rows = [[columns[name][row] for name in names] for row in shown.rows]
        return table(names, rows, [note])

    def diff(self, run: str, other: str, code: bool = True) -> str:
        """List the differences between two runs: parameters, environment, lines of code.

        Args:
            run: a run, see run.
            other: the other run.
            code: compare the code snapshots too.
        """
        runs = [self._database.find(reference) for reference in (run, other)]
        sections = run_differences(*((self._database.data_root, one.record) for one in runs))
        rows = [
            [section, name, *map(plain, values)]
            for section, found in sections.items()
            for name, values in found.items()
        ]
        heads = ["what", "name", *(one.record.date for one in runs)]
        parts = [table(heads, rows) if rows else "same parameters"]
        if code:
            folders = [one.folder(CODE) for one in runs]
            text, lacking = code_differences(*folders, bounded=True)
            dates = [one.record.date for one in runs if one.folder(CODE) in lacking]
            parts.append(
                f"no code stored for {' and '.join(dates)}" if lacking else lines_text(text) or "same code"
            )
        return bounded("\n".join(parts), "code=false leaves out the code")

    def curves(
        self,
        *,
        metric: str | None = None,
        runs: list[str] | None = None,
        by: list[str] | None = None,
        where: str | None = None,
        table_name: str | None = None,
        since: str | None = None,
        points: int = 12,
    ) -> str:
        """Give learning curves as a small table: a line for each time-step, a column for each run or group.

        Args:
            metric: default: the likely one.
            runs: only these, see run; default: all that match.
            by: parameters: a column for the mean of each group; default: one for each run.
            where: filter, see runs.
            table_name: only this task table.
            since: a date or an age.
            points: time-steps, at most 100.
        """
        records = self._chosen(runs, where, table_name, since)
        chosen = _metrics(metric, records)
        groups = _curve_groups(records, by)
        total = len(groups) * len(chosen)
        chosen = chosen[:MOST_CURVES]
        groups = dict(list(groups.items())[: MOST_CURVES // len(chosen)])
        if sum(map(len, groups.values())) > MOST_RUNS_OF_CURVES:
            raise ArgumentError(
                f"more than {MOST_RUNS_OF_CURVES} runs would be read\nhint: where, since or table_name"
            )
        names, rows = self._curve_table(chosen, groups, min(max(points, 2), MOST_POINTS))
        shown = len(names) - 1
        notes = [f"{listed(chosen)}; (n): mean of n runs, less where some have ended"]
        notes += [f"{shown} of {total} shown; runs or where picks others"] if shown < total else []
        return table(names, rows, notes)

    def log(
        self,
        *,
        run: str = "@last",
        file: str = "log",
        lines: int = 30,
        contains: str | None = None,
        table_name: str | None = None,
    ) -> str:
        """Give the end of a run's text file.

        Args:
            run: see run.
            file: log, progress (the table of metrics), warn (warnings, tracebacks), backup or console.
            lines: at most 200.
            contains: only lines with this text, of the last 4 MB.
            table_name: only this task table.
        """
        found = self._database.find(run, table_name)
        most = min(max(lines, 1), MOST_LINES)
        searched = most if contains is None else SEARCHED_BYTES
        read, _ = last_lines(log_path(found, file), searched, SEARCHED_BYTES)
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in read]
        fitting = [text for text in texts if contains is None or contains in text]
        if not fitting:
            return "no line holds it" if texts else "it is empty"
        shown: list[str] = []
        room = MAX_CHARS - NOTE_CHARS
        for text in fitting[: -most - 1 : -1]:  # the newest first
            cut = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"
            room -= len(cut) + 1
            if room < 0:
                break
            shown.insert(0, cut)
        more = f"\n(the last {len(shown)} of {len(fitting)} lines)" if len(shown) < len(fitting) else ""
        return lines_text("\n".join(shown)) + more

    def sql(self, query: str, limit: int = 50) -> str:
        """Run one SELECT (DuckDB) over runs, params, last, rows, system, files, samples.

        runs(run, table, index, host, state, opened, took, step, metric, value, tags, note, name, kinds,
            parent);
        params(run, name, value, number); last(run, metric, value, text);
        rows(run, step, metric, value, text); system(run, time, metric, value);
        files(run, kind, path, bytes, changed); samples(run, step, logged, name, role, "group", id,
            reward, prompt, completion, numbers, texts), of language models. `run` joins them.

        Args:
            query: the SELECT.
            limit: rows, at most 200.
        """
        from rla_client.database.lake.sql_query import Clock, fetched

        most, clock = min(max(limit, 1), MOST_ROWS), Clock(SQL_S, MOST_SQL_BYTES)
        result = self._database.sql(query, clock)
        rows = fetched(result, most + 1, clock)
        more = f"more than {most} rows: aggregate, or LIMIT and OFFSET" if len(rows) > most else ""
        return table([column[0] for column in result.description or ()], rows[:most], [more])

    def _chosen(
        self, references: list[str] | None, where: str | None, table_name: str | None, since: str | None
    ) -> list[Record]:
        """The chosen runs, the newest first."""
        passed = self._database.records(table_name, where, since)
        if references:
            named = {
                (one.table, one.index)
                for reference in references
                for one in self._database.find_all(reference, table_name)
            }
            passed = [one for one in passed if (one.table, one.index) in named]
        if not passed:
            raise ArgumentError("no runs match")
        return passed[::-1]

    def _curve_table(
        self, metrics: Sequence[str], groups: dict[str, list[Record]], points: int
    ) -> tuple[list[str], list[list[object]]]:
        """Columns and rows: the mean of each group and metric, interpolated at common time-steps."""
        import numpy as np

        from rla_client.plot.frames import curves_of
        from rla_client.plot.smoothing import group_curves

        pairs_of = {name: {(one.table, one.index) for one in group} for name, group in groups.items()}
        every = [pair for pairs_ in pairs_of.values() for pair in pairs_]
        frame, means = self._database.curves(every, metrics), {}
        for metric in metrics if len(metrics) == 1 else frame["metric"].unique():
            curves = curves_of(frame, metric)
            shown = f" {metric}" if len(metrics) > 1 else ""
            for name, members in pairs_of.items():
                found = [curve for run, curve in curves.items() if run in members]
                if found:
                    xs, values = group_curves(found, MOST_POINTS * 10)
                    means[f"{name}{shown} ({len(found)})"] = xs, np.nanmean(values, axis=0)
        if not means:
            raise ArgumentError(f"none of these runs has {listed(metrics)} with numbers")
        first, last = min(xs[0] for xs, _ in means.values()), max(xs[-1] for xs, _ in means.values())
        steps = np.unique(np.linspace(first, last, points))  # a single one if all runs have only one step
        columns = [np.interp(steps, xs, ys, left=np.nan, right=np.nan).tolist() for xs, ys in means.values()]
        rows = [
            [plain(round(step)) if last - first > points else step, *(None if v != v else v for v in values)]  # noqa: PLR0124
            for step, *values in zip(steps.tolist(), *columns, strict=True)
        ]
        return ["time-step", *means], rows


def _states(counts: Counter[str]) -> str:
    return " ".join(f"{count} {state}" for state, count in counts.most_common())


def _listed(names: Iterable[str], most: int = 60) -> str:
    words = [cell(name) for name in names]
    return ", ".join(words[:most]) + (f", … ({len(words) - most} more)" if len(words) > most else "")


def _full(names: Sequence[str], records: Sequence[Record]) -> list[str]:
    full = full_names(set(names), records)
    return [full[name] for name in names]


def _metrics(asked: str | None, records: Sequence[Record]) -> list[str]:
    """The metric as the runs spell it, of each role if only roles have it; by default the likely one."""
    if asked:
        return full_metrics([asked], records)
    chosen = likely_of(records)
    if chosen is None:
        raise ArgumentError("none of these runs has a metric with numbers yet")
    return [chosen]


def _usual_columns(records: Sequence[Record]) -> list[str]:
    keys, _ = differing_keys(records)
    likely = likely_of(records)
    several = len({record.table for record in records}) > 1
    names = ["run", *(["table"] if several else []), "state", "step", "took"]
    names += [*([likely] if likely else []), *keys]
    tagged = ["tags"] if any(record.tags for record in records) else []
    return [*dict.fromkeys([*names[: MOST_COLUMNS - len(tagged)], *tagged])]


def _shown(row: RowView, name: str) -> object:
    value = row.get(name)
    return round(value, 1) if name == "took" and isinstance(value, float) else plain(value)


def _sorted(records: list[Record], sort: str, now: float) -> list[Record]:
    """The runs in descending order; ascending for `-NAME`; runs without the column last."""
    name = _full([sort.removeprefix("-")], records)[0]
    sign = 1 if sort.startswith("-") else -1

    def key(record: Record) -> tuple[int, float, str]:
        value = RowView(record, now).get(name)
        if isinstance(value, int | float):
            return (0, sign * value, "") if value == value else (1, 0.0, "")  # noqa: PLR0124 - a NaN
        return (1, 0.0, "") if value is None else (0, 0.0, str(value))

    return sorted(records, key=key)


def _rank(group: Group, *, minimize: bool) -> float:
    mean, _ = mean_and_interval(group.numbers)
    if mean is None or not math.isfinite(mean):
        return math.inf
    return mean if minimize else -mean


def _group_row(group: Group) -> list[object]:
    mean, interval = mean_and_interval(group.numbers)
    low, high = min(group.numbers, default=None), max(group.numbers, default=None)
    return [*group.texts, group.states.total(), _states(group.states), mean, interval, low, high]


def _curve_groups(records: Sequence[Record], by: list[str] | None) -> dict[str, list[Record]]:
    """Runs by the name of their column: one for each run, or for each group with equal parameters."""
    if not by:
        keys, flats = differing_keys(records[:MOST_CURVES])
        found = {}
        for record, flat in zip(records, [*flats, *({} for _ in records[MOST_CURVES:])], strict=True):
            distinct = " ".join(f"{cell(key)}={cell(flat[key])}" for key in keys[:3] if key in flat)
            name = f"{record.date} {distinct}".strip() + f" {record.table}" * (record.date in found)
            found[name] = [record]
        return found
    names = _full(by, records)
    now = clock()
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        row = RowView(record, now)
        groups.setdefault(tuple(group_text(row.get(name)) for name in names), []).append(record)
    ordered = sorted(groups, key=lambda texts: list(map(group_order, texts)))
    named: dict[str, list[Record]] = {}
    for texts in ordered:
        label, number = clean(group_label(names, texts)), 1
        name = label
        while name in named:  # labels that differ only in white space
            number += 1
            name = f"{label} #{number}"
        named[name] = groups[texts]
    return named
