"""Rows of samples in the dump formats of trainers.

prime-rl writes episodes of verifiers, `rollouts/step_N/<kind>/<subset>/traces.jsonl`: each trace, a tree
of messages, is a sample. NeMo-RL writes batches of one row, with each value in a list of length one.
SkyRL's scores may be one number per token. AReaL's step is the version of the policy that sampled last.
Other rows stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TRAINED_ON = "effective"  # folder of prime-rl; the same traces are in its `all`, without advantages
TRACE = "trace"  # column of a trace's id
_SCORES = ("score", "reward")
_VERSION = "tail_version"  # column of AReaL
_NUMBER = "idx"  # column of NeMo-RL that is no list


class TraceRow(dict[str, Any]):
    """A sample from a trace of an episode; its TRACE is the trace's id."""


def dumped_rows(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Samples in one object of a dump."""
    if isinstance(row.get("traces"), list) and isinstance(row.get("task"), dict):
        yield from _of_episode(row)
        return
    row = _unbatched(row)
    own: dict[str, Any] = {name: _sum(row[name]) for name in _SCORES if _are_numbers(row.get(name))}
    if _is_number(version := row.get(_VERSION)):
        own |= {"step": version, "policy_version": version}
    yield {**row, **own} if own else row


def _unbatched(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of NeMo-RL without its lists of one, with one number as its advantage."""
    values = {name: value for name, value in row.items() if name != _NUMBER}
    if _NUMBER not in row or not values or not all(map(_is_batch_of_one, values.values())):
        return row
    found = {**{name: value[0] for name, value in values.items()}, _NUMBER: row[_NUMBER]}
    if _are_numbers(found.get("advantages")):
        found["advantages"] = _mean_where_set(found["advantages"])
    return found


def _is_batch_of_one(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 1:
        return False
    return not (isinstance(value[0], dict) and "role" in value[0])  # a conversation of one message


def _of_episode(episode: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    env, work = _part(episode, "env"), _part(_part(episode, "run"), "work")
    task = _part(episode, "task")
    shared = {  # the id of a group differs at each step
        "group": task.get("key") or task.get("hash") or _part(episode, "group").get("id"),
        "env": env.get("name") or env.get("id"),
        "policy_version": _part(work, "policy").get("end"),
        "episode": episode.get("id"),
    }
    for trace in episode["traces"]:
        if isinstance(trace, dict):
            error = _error(trace) or _error(episode)
            found = {**_of_trace(trace), **shared, "error": error}
            yield TraceRow({name: value for name, value in found.items() if value is not None})


def _of_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    nodes = [node for node in _list(trace, "nodes") if isinstance(node, dict)]
    path = _last_branch(nodes)
    begin = next((place for place, node in enumerate(path) if node.get("sampled")), len(path))
    messages = [node.get("message") for node in path]
    scores = {
        name: one
        for name, one in _part(trace, "rewards").items()
        if isinstance(one, dict) and _is_number(one.get("score"))
    }
    finishes = [one["finish_reason"] for one in _list(trace, "calls") if _is_finished(one)]
    advantages = [value for node in nodes for value in _list(node, "advantages")]
    task = _part(_part(trace, "task"), "data")
    sampled = sum(sum(map(bool, _list(node, "mask"))) for node in path)
    return {
        "prompt": messages[:begin],
        "completion": messages[begin:],
        "reward": _sum([one["score"] * _weight(one) for one in scores.values()]),
        "rewards": {name: one["score"] for name, one in scores.items()} or None,
        "metrics": _part(trace, "metrics") or None,
        "advantage": _mean_where_set(advantages) if _are_numbers(advantages) else None,
        "truth": task.get("answer"),
        "example": task.get("idx"),
        "agent": _part(trace, "agent").get("name"),
        "finish": finishes[-1] if finishes else None,
        "stop": trace.get("stop_condition"),
        "turns": sum(bool(node.get("sampled")) for node in nodes),
        "tokens_prompt": sum(len(_list(node, "token_ids")) for node in path) - sampled or None,
        "tokens_completion": sampled or None,
        TRACE: trace.get("id"),
    }


def _weight(score: Mapping[str, Any]) -> float:
    weight = score.get("weight")
    return weight if isinstance(weight, int | float) else 1.0


def _sum(values: Sequence[float]) -> float:
    """Sum of values; NaN if infinities make it undefined."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return math.nan


def _is_finished(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("finish_reason"), str)


def _last_branch(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Nodes from a root to the last leaf, which was logged last."""
    path: list[Mapping[str, Any]] = []
    at: object = len(nodes) - 1
    while isinstance(at, int) and 0 <= at < len(nodes) and len(path) < len(nodes):
        path.append(nodes[at])
        at = nodes[at].get("parent")
    return path[::-1]


def _mean_where_set(values: Sequence[float]) -> float:
    """Mean of the values other than 0: only sampled tokens have an advantage."""
    found = [value for value in values if value]
    return math.fsum(found) / len(found) if found else 0.0


def _error(row: Mapping[str, Any]) -> str | None:
    errors = _list(row, "errors")
    last = errors[-1] if errors and isinstance(errors[-1], dict) else None
    return None if last is None else f"{last.get('type')}: {last.get('message')}"


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, dict) else {}


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    found = row.get(name)
    return found if isinstance(found, list) else []


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
