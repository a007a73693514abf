"""Rows of the tables of completions that trainers write.

TRL's `completions/*.parquet` have a column for each reward function; other trainers use other names. Known
columns get the names of `log_samples`; the rest stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError, extra

STEP_IN_NAME = re.compile(  # completions_00042.parquet, 7.jsonl; 5-samples.csv; samples_7_0a1b.table.json
    r"(?:^|[_.-]|step|iter|iteration|epoch|rollouts?|batch|gen)"  # none: math500.jsonl
    r"(?P<last>\d+)(?=\.\w+$)"
    r"|^(?P<first>\d+)(?=-.*\.csv$)|(?<=_)(?P<table>\d+)(?=_[0-9a-f]+\.table\.json$)"
)
_NAMES = {  # of other trainers: verl, NeMo-RL, prime-rl, AReaL, TRL, OpenRLHF, SkyRL
    "input": "prompt",
    "input_prompt": "prompt",
    "inputs": "prompt",
    "query": "prompt",
    "question": "prompt",
    "output": "completion",
    "outputs": "completion",
    "output_response": "completion",
    "response": "completion",
    "trajectory": "completion",
    "completions": "completion",
    "score": "reward",
    "scores": "reward",
    "gts": "truth",
    "ground_truth": "truth",
    "answer": "truth",
    "advantages": "advantage",
    "finish_reason": "finish",
    "stop_reason": "finish",
    "prompt_id": "group",
    "uid": "group",
    "text": "completion",
    "content": "completion",
    "messages": "completion",
}
_NUMBERED = re.compile(r"^(input|output|score)_(\d+)$")  # a row a step, as verl and SkyRL log their tables
GENERATION = ("num_iterations", "steps_per_generation", "gradient_accumulation_steps")  # of TRL's trainers
STEPS = ("step", "global_step", "time-step", "iteration")
_EVALUATION = re.compile(  # val/generations, eval-samples, val_data_step5.jsonl, dumped_evals/…, test.jsonl
    r"(?<![a-z])(evals?|evaluations?|val|validations?)(?![a-z])|(^|/)test(?![^/.])", re.IGNORECASE
)
_PHASES = ("split", "phase", "mode")  # columns that tell training from evaluation
_OWN = frozenset(
    ("prompt", "completion", "step", "advantage", "reward", "rewards", "group", "truth", "error")
)


def known_names(row: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A row under the names of `log_samples`; a name that the row has already is not used again.

    Args:
        row: of a table.
        without: columns that are left out, by their names in `log_samples`.
    """
    pairs = _known(tuple(row), _is_number(row.get("rewards")), without)
    return {known: row[name] for name, known in pairs}


@lru_cache(maxsize=256)  # the rows of a table have the same names
def _known(
    names: tuple[str, ...], is_rewards_number: bool, without: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name in names:
        known = "reward" if name == "rewards" and is_rewards_number else _NAMES.get(name, name)
        known = name if known != name and (known in names or known in found) else known
        found[known] = name
    return tuple((name, known) for known, name in found.items() if known not in without)


def is_text(name: str) -> bool:
    """Whether a column holds texts, even if they look like numbers."""
    match = _NUMBERED.fullmatch(name)
    base = name if match is None else match[1]
    return _NAMES.get(base, base) in {"prompt", "completion", "truth", "error", "group"}


def single_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of a table that has all samples of a step in one, `input_1, output_1, score_1, input_2, …`."""
    found: list[Mapping[str, Any]] = []
    for row in rows:
        numbered = _numbered(tuple(row))
        if not numbered:
            found.append(row)
            continue
        apart: dict[int, dict[str, Any]] = {}
        for name, (base, number) in numbered.items():
            if (value := row[name]) is not None and value != "":
                apart.setdefault(number, {})[base] = value
        rest = {name: value for name, value in row.items() if name not in numbered}
        found += [{**rest, **apart[number]} for number in sorted(apart)] if apart else [row]
    return found


@lru_cache(maxsize=256)
def _numbered(names: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Columns of single samples: what each has, and of which sample."""
    matches = ((name, _NUMBERED.fullmatch(name)) for name in names)
    return {name: (match[1], int(match[2])) for name, match in matches if match is not None}


def trl_rows(
    rows: Sequence[Mapping[str, Any]], weights: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Rows of TRL's table: its reward columns become `rewards`, `reward` their weighted sum.

    Args:
        rows: of one file.
        weights: of the reward functions in the order of their columns; None: 1 each.
    """
    names = [name for name in (rows[0] if rows else ()) if name not in _OWN]
    rewards = [name for name in names if all(_is_number(row.get(name)) for row in rows)]
    used = dict(zip(rewards, weights, strict=True)) if weights and len(weights) == len(rewards) else {}
    found = []
    for row in rows:
        given = {name: row[name] for name in rewards if row[name] is not None and not math.isnan(row[name])}
        whole = {name: value for name, value in row.items() if name not in rewards and name != "step"}
        if given:
            whole["rewards"] = given
            whole.setdefault("reward", sum(value * used.get(name, 1.0) for name, value in given.items()))
        found.append(whole)
    return found


class TrlTables:
    """TRL's tables of one training, in which each sample counts once.

    A table has the completions that were generated last. It is repeated at a step that generates none, and
    beside the completions of an evaluation at the same step, after which training's last ones may remain.

    Args:
        parameters: of the trainer.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        given = (parameters.get(name) for name in GENERATION)
        iterations, generation, accumulated = (value if isinstance(value, int) else 1 for value in given)
        self._own = iterations * generation <= accumulated  # each step generates
        self._step: float | None = None
        self._last: list[list[str | float]] = []

    def new_rows(
        self, rows: Sequence[Mapping[str, Any]], step: float
    ) -> tuple[Sequence[Mapping[str, Any]], str]:
        """The rows of the next table that are new, and the name to log them under."""
        again = step == self._step
        before, self._step = self._last, step
        self._last = [
            # text as it is, of which a copy would take longer than all else; NaN is unequal to itself
            [
                cell if (kind := type(cell)) is str or (kind is float and cell == cell) else repr(cell)  # noqa: PLR0124
                for name, cell in row.items()
                if name != "step"
            ]
            for row in rows
        ]
        if again:
            return rows[_overlap(before, self._last) :], "eval"
        return ([] if not self._own and before == self._last else rows), "train"


def _overlap(before: list[list[str | float]], now: list[list[str | float]]) -> int:
    """How many rows at the end of one table begin the next one."""
    counts = range(min(len(before), len(now)), 0, -1)
    return next((count for count in counts if before[-count:] == now[:count]), 0)


def are_of_trl(columns: Collection[str]) -> bool:
    """Whether a table has the columns of TRL's."""
    return {"step", "prompt", "completion", "advantage"} <= set(columns)


def are_samples(columns: Sequence[str]) -> bool:
    """Whether a table with these columns has samples: completions, and their prompts or rewards."""
    known = known_names({_NUMBERED.sub(r"\1", name): 0 for name in columns})
    return "completion" in known and not known.keys().isdisjoint({"prompt", "reward", "advantage"})


def samples_name(*said: object) -> str:
    """The name of samples: `eval` if a text says so, such as the name of their table, else `train`."""
    return "eval" if any(isinstance(one, str) and _EVALUATION.search(one) for one in said) else "train"


def name_of_row(row: Mapping[str, Any]) -> str:
    """The name of a sample according to its own columns."""
    return samples_name(*(row.get(name) for name in _PHASES))


def step_of_row(row: Mapping[str, Any]) -> int | float | None:
    """The time-step in a row's own columns."""
    for name in STEPS:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file.

    Raises:
        ArgumentError: it is none. OSError: it cannot be read.
        DatabaseError: pyarrow is not installed.
    """
    with extra("parquet", f"reading {path.name}"):
        import pyarrow as pa  # noqa: PLC0415 - only where there are tables
        import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise ArgumentError(f"{path} is no Parquet file: {error}") from error
    return rows


def step_of_name(path: Path) -> int | None:
    """The time-step that ends a file's name; None without one."""
    found = STEP_IN_NAME.search(path.name)
    return int(next(filter(None, found.groups()))) if found else None
