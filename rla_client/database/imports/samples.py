"""Import of a trainer's samples into an existing run.

The import reads Parquet files (TRL's `completions/`), JSON lines (verl, NeMo-RL, prime-rl, AReaL, SkyRL),
tables of wandb (`<name>_<step>_<hash>.table.json`) and tables as CSV, `<time-step>-<name>.csv`, from the
results of runs of the wandb module and of `rla import trackio`. The time-step is that of a row, else of
its folder (`step_5`, `global_step_5_evals`), else of the file's name. A row counts once, even if its table
was logged again with more rows or its trace lies in two folders. Files of a folder without a prompt or a
completion are skipped. Samples that the run has already are left out (`known_samples`). The others are
written to a new samples file, `samples.import-<hash of the path>.jsonl.gz` (`…-2` if the path was imported
before), atomically.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder, is_there
from rla_client.contract.layout import SAMPLES, item_path, samples_file
from rla_client.contract.sample_encoding import SampledAt, encode_samples
from rla_client.database.imports.dumped_rows import TRACE, TRAINED_ON, TraceRow, dumped_rows
from rla_client.database.imports.known_samples import KnownSamples
from rla_client.samples.cells import plain_row
from rla_client.samples.completion_tables import (
    STEPS,
    TrlTables,
    are_of_trl,
    is_text,
    known_names,
    name_of_row,
    read_parquet,
    samples_name,
    single_rows,
    step_of_name,
    step_of_row,
    trl_rows,
)

ENDINGS = (".parquet", ".jsonl", ".json", ".ndjson")
TABLE_ENDING = ".table.json"
CSV_TABLE = re.compile(r"\d+-.+\.csv")
_STEP_OF_FOLDER = re.compile(r"(?:^|_)step_?(\d+)(?:_|$)")
_STEP_AND_HASH = re.compile(r"_\d+_[0-9a-f]+\.table\.json$")
TRL_NAME = "completions_"
TRL_CSV = "-completions.csv"
MAX_CHARS = 1_000_000  # of one cell
MAX_CSV_CELL = 64 << 20  # bytes of a cell in the file
CHUNK_ROWS = 10_000
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ImportedSamples:
    """Result of an import.

    Attributes:
        file: file of the new samples; None without any.
        rows: number of new samples.
        there: number of samples that the run had already.
        withheld: columns of token ids, masks and log-probabilities, which are left out.
        skipped: files of the folder that have neither a prompt nor a completion.
    """

    file: Path | None
    rows: int
    there: int = 0
    withheld: Sequence[str] = ()
    skipped: Sequence[Path] = ()


def import_samples(  # noqa: PLR0913 - the parts of a call
    data_root: Path,
    table: str,
    index: str,
    source: Path,
    now: float,
    parameters: Mapping[str, Any] = NOTHING,
    *,
    name: str | None = None,
) -> ImportedSamples:
    """Add to a run the samples of a file, or of all files in a folder, that it does not have yet.

    Args:
        data_root: of the database.
        table: task table of the run.
        index: of the run.
        source: a file, or a folder.
        now: Unix seconds, the timestamp of samples that have none.
        parameters: hyper-parameters of the run, which say at which steps TRL's trainers generate.
        name: name of the samples; None: `eval` if the file, its folder or a row says so, else `train`.

    Raises:
        ArgumentError: there is nothing to import, or a file cannot be parsed; nothing is written then.
        BrokenFileError: the run's own samples are damaged.
        OSError: a file cannot be read or written.
    """
    is_file = source.is_file()
    above = source.parent if is_file else source
    files = [source] if is_file else sorted(
        (path for path in source.rglob("*") if _has_samples(path.name) and path.is_file()),
        key=lambda path: (_step_of(path, above) or 0, TRAINED_ON not in path.parts, str(path)),
    )  # fmt: skip
    if not files:
        raise ArgumentError(
            f"{source} has no file of samples: it should end in {', '.join((*ENDINGS, '.csv'))}"
        )
    first = f"import-{hashlib.blake2b(str(source.resolve()).encode(), digest_size=4).hexdigest()}"
    with held_folder(data_root, item_path(SAMPLES, table, index), create=True) as folder:
        roles = chain([first], (f"{first}-{number}" for number in count(2)))
        role = next(one for one in roles if not is_there(folder / samples_file(one)))
        known = KnownSamples(data_root, table, index)
        tables = Tables(parameters, takes_all=is_file)
        parts = _new_parts(files, above, known, tables, SampledAt(name or "", role, 0, now))
        part = next(parts, None)
        if part is None:
            if known.met:
                return ImportedSamples(None, 0, known.met, sorted(tables.withheld), tables.skipped)
            raise ArgumentError(f"{source} has no samples{_skipped_text(tables.skipped)}")
        rows = 0
        with replacing(folder / samples_file(role)) as temp, temp.open("wb") as out:
            for at, some in chain([part], parts):
                out.writelines(encode_samples(some, at, rows))
                rows += len(some)
    path = data_root / SAMPLES / table / index / samples_file(role)
    return ImportedSamples(path, rows, known.met, sorted(tables.withheld), tables.skipped)


def _skipped_text(files: Sequence[Path]) -> str:
    return f": none of {len(files)} file(s) has a prompt or a completion, such as {files[0]}" if files else ""


def _new_parts(
    files: Iterable[Path], above: Path, known: KnownSamples, tables: Tables, at: SampledAt
) -> Iterator[tuple[SampledAt, list[dict[str, Any]]]]:
    """New rows, in parts with their step and name."""
    for path in files:
        file_name = samples_name(f"{above.resolve().name}/{path.relative_to(above).as_posix()}")
        for step, name, rows in _chunks(path, _step_of(path, above) or 0, tables):
            some = known.without(rows, step)
            if some:
                yield at._replace(step=step, name=at.name or samples_name(file_name, name)), some


def _has_samples(name: str) -> bool:
    return name.endswith(ENDINGS) or CSV_TABLE.fullmatch(name) is not None


def _step_of(path: Path, above: Path) -> int | None:
    """Time-step in the name of the nearest folder, else of the file.

    Args:
        path: a file.
        above: the outermost folder to consider.
    """
    folders = [above.resolve().name, *path.relative_to(above).parent.parts]
    found = next(filter(None, map(_STEP_OF_FOLDER.search, reversed(folders))), None)
    return step_of_name(path) if found is None else int(found[1])


class Tables:
    """The tables of an import; a trainer may log a table again after it has grown.

    Args:
        parameters: of the run.
        takes_all: also take files without a prompt or a completion.

    Attributes:
        withheld: see `ImportedSamples`.
        skipped: see `ImportedSamples`.
    """

    def __init__(self, parameters: Mapping[str, Any], *, takes_all: bool) -> None:
        self.withheld: set[str] = set()
        self.skipped: list[Path] = []
        self._takes_all = takes_all
        self._traces: set[object] = set()
        self._trl = TrlTables(parameters)
        self._last: dict[str, Sequence[Mapping[str, Any]]] = {}

    def new_rows(
        self, path: Path, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[Sequence[Mapping[str, Any]], str]:
        """The rows that the previous file of the same table did not have, and their name."""
        if rows and _is_of_trl(path) and are_of_trl(rows[0]):
            return self._trl.new_rows(rows, step_of_row(rows[0]) or 0)
        if not (self._takes_all or any(map(_is_sample, rows))):
            self.skipped.append(path)
            return [], "train"
        if not path.name.endswith(TABLE_ENDING):
            return [row for row in rows if not isinstance(row, TraceRow) or self._is_first(row)], "train"
        name = _STEP_AND_HASH.sub("", str(path))
        before = self._last.get(name, [])
        self._last[name] = rows
        return rows[len(before) :] if rows[: len(before)] == before else rows, "train"

    def _is_first(self, row: TraceRow) -> bool:
        """Whether a trace occurs for the first time; traces without an id always do."""
        trace = row.get(TRACE)
        if not isinstance(trace, str | int):
            return True
        is_first = trace not in self._traces
        self._traces.add(trace)
        return is_first


def _is_sample(row: Mapping[str, Any]) -> bool:
    return not {"prompt", "completion"}.isdisjoint(known_names(single_rows([row])[0]))


def _is_of_trl(path: Path) -> bool:
    return path.name.startswith(TRL_NAME) or path.name.endswith(TRL_CSV)


def _chunks(path: Path, of_file: float, tables: Tables) -> Iterator[tuple[float, str, list[dict[str, Any]]]]:
    """Rows of a file, in chunks of the same step and name.

    Args:
        path: the file.
        of_file: step of rows without one.
        tables: tables of the import.
    """
    if path.suffix == ".parquet":
        rows: Sequence[Mapping[str, Any]] = read_parquet(path)
    elif path.suffix == ".csv":
        rows = list(_csv_rows(path))
    else:
        rows = [row for found in _json_rows(path) for row in dumped_rows(found)]
    rows, name = tables.new_rows(path, rows)
    rows = single_rows(rows)
    steps = [of_file if (own := step_of_row(row)) is None else own for row in rows]
    if _is_of_trl(path):
        rows = trl_rows(rows)
    names = [samples_name(name, name_of_row(row)) for row in rows]
    for (step, of_row), numbers in groupby(range(len(rows)), lambda number: (steps[number], names[number])):
        chosen = list(numbers)
        for begin in range(0, len(chosen), CHUNK_ROWS):
            some = [
                plain_row(
                    known_names(rows[n], without=STEPS),
                    MAX_CHARS,
                    withheld=tables.withheld,
                )
                for n in chosen[begin : begin + CHUNK_ROWS]
            ]
            yield step, of_row, some


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a file of JSON lines, or of one list of objects.

    Raises:
        ArgumentError: the file is neither.
    """
    with open_plain(path, links=True) as file:
        number = 0
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ArgumentError(f"line {number} of {path} is no JSON: {error}") from error
            for row in found if isinstance(found, list) else [found]:
                if not isinstance(row, dict):
                    raise ArgumentError(f"line {number} of {path} is no JSON object")
                yield from _table_rows(row)


def _table_rows(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Rows of a table of wandb or trackio; any other object is one row."""
    columns, data, value = found.get("columns"), found.get("data"), found.get("_value")
    if isinstance(columns, list) and isinstance(data, list):
        yield from (
            dict(zip(map(str, columns), cells, strict=False)) for cells in data if isinstance(cells, list)
        )
    elif str(found.get("_type")).endswith(".table") and isinstance(value, list):
        yield from (row for row in value if isinstance(row, dict))
    else:
        yield found


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a CSV file; numbers, lists and objects in its cells are parsed as JSON.

    Raises:
        ArgumentError: it is no CSV.
    """
    with open_plain(path, links=True) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
        before = csv.field_size_limit(MAX_CSV_CELL)
        try:
            rows = list(csv.DictReader(text))
        except csv.Error as error:
            raise ArgumentError(f"{path} is no CSV: {error}") from error
        finally:
            csv.field_size_limit(before)
    for row in rows:
        yield {name: _cell(name, cell) for name, cell in row.items() if name}


def _cell(name: str, text: object) -> object:
    if not isinstance(text, str) or not text:
        return None
    if text[0] in "[{" or (text[0] in "-0123456789" and not is_text(name)):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return found if not is_text(name) or _are_messages(found) else text  # a text may look like JSON
    return text


def _are_messages(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, dict) and "role" in one for one in found)
