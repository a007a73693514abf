"""Rows of the open run, each by one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.run.close import end_given_up
from rla_client.run.record.excluded_sinks import Row
from rla_client.stream.clock import TimeStep, time_step_holder
from rla_client.stream.values import MAX_DEPTH

_NO_GROUPS = frozenset((float, int, bool, str))  # types of which `log` need not ask whether they are dicts


def log(values: Mapping[str, Any], step: TimeStep | None = None) -> Row:
    """Write one row: `record_tabular` for each value, the clock set to `step`, `dump_tabular`.

    Values that were recorded before and not yet dumped are part of the row.

    Args:
        values: name to number, text or array; nested dicts become `group/name`. Figures of matplotlib
            and plotly, PIL images, uint8 arrays of shape (H, W, C) or (C, H, W) with C of 1, 3 or 4, and
            lists of these are saved as `results/…/<time-step>-<name>.png` (plotly: `.html`) by the agent.
        step: the time-step. Without it, the clock keeps its value; if it was never set, the
            calls are counted from 0.

    Returns:
        The row with `time-step` and `timestamp`; an empty dict when there was no value, pictures aside.

    Raises:
        ArgumentError: `values` is not a dict, or `step` is not a finite number; nothing is written then.
    """
    given = flat(values)
    end_given_up()
    current = logger.get_current()
    with current.lock:  # rows of two threads do not mix
        if step is not None:
            time_step_holder.set_time(step)
        for name, value in given:
            logger.record_tabular(name, value)
        row = current.dump()
        if row or given:
            time_step_holder.count()
    return row


def log_samples(
    rows: object,
    step: TimeStep | None = None,
    name: str = "train",
    group: object = None,
    *,
    tokens: bool = False,
) -> None:
    """Keep samples of a language model: prompts, completions, rewards, and whatever else a row has.

    A call that has returned is safe from a kill of this process, as a row is. It never raises and never
    waits: what cannot be kept is counted as lost, with a warning. rla_config.yaml has the limits (`SAMPLES`).

    Args:
        rows: a list of dicts, a dict of columns, or a DataFrame. Known names: `prompt` and `completion`
            (text or messages), `reward`, `rewards` ({name: number}), `advantage`, `group`,
            `tokens_prompt`, `tokens_completion`, `finish`, `truth`, `policy_version`, `error`. Other
            numbers and texts become columns, too; lists and dicts JSON; pictures files of the results.
        step: the time-step; default that of the clock, which stays as it is.
        name: tells them from others, such as those of an evaluation.
        group: what tells samples of one prompt from others: the name of a column, or one value a row;
            default a hash of the prompt.
        tokens: keep lists of token ids, masks and log-probabilities, too.
    """
    from rla_client.run.record.log_samples import log_samples as log_into  # noqa: PLC0415 - only where there are some

    end_given_up()
    log_into(logger.get_current(), rows, step=step, name=name, group=group, tokens=tokens)


def flat(values: object, prefix: str = "", around: tuple[int, ...] = ()) -> list[tuple[str, Any]]:
    """Names and values of a dict, those of nested dicts as `group/name`.

    Dicts below `MAX_DEPTH`, or that contain themselves, stay values. `around`: identities of those around it.

    Raises:
        ArgumentError: it is no dict.
    """
    if not isinstance(values, Mapping):
        what = type(values).__name__
        raise ArgumentError(f"log takes a dict of values, e.g. log({{'loss': 0.1}}, step=1), got {what}")
    found: list[tuple[str, Any]] = []
    inside = (*around, id(values))
    for name, value in values.items():
        is_group = type(value) not in _NO_GROUPS and isinstance(value, Mapping)
        if is_group and len(around) < MAX_DEPTH and id(value) not in inside:
            found += flat(value, f"{prefix}{name}/", inside)
        else:
            found.append((f"{prefix}{name}", value))
    return found
