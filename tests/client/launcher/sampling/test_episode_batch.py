from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.sampling.env_spec import StepType
from rla_client.launcher.sampling.episode_batch import EpisodeBatch, stack


def batch(*lengths: Any, end: Any = StepType.TERMINAL) -> Any:
    parts = []
    for number, length in enumerate(lengths):
        types = [StepType.MID] * (length - 1) + [end]
        types[0] = StepType.FIRST if length > 1 else end
        observations = np.arange(length * 2, dtype=np.float32).reshape(length, 2) + 100 * number
        parts.append(
            EpisodeBatch(
                observations,
                observations[-1:] + 2,
                np.zeros(length, dtype=np.int64),
                np.arange(length, dtype=np.float64) + 1,
                np.asarray(types, dtype=np.int8),
                np.asarray([length]),
                {"x": np.arange(length)},
                {},
                {"seed": np.asarray([number])},
            )
        )
    return EpisodeBatch.concatenate(parts)


def test_shapes_and_derived_values() -> None:
    found = batch(3, 1, 2)
    assert found.n_steps == 6
    assert len(found) == 3
    assert found.returns.tolist() == [6.0, 1.0, 3.0]
    assert found.next_observations[:, 0].tolist() == [2, 4, 6, 102, 202, 204]
    assert found.terminals.tolist() == [False, False, True, True, False, True]
    assert batch(2, end=StepType.TIMEOUT).terminals.any() == np.False_
    assert batch(2, end=StepType.TIMEOUT).dones.tolist() == [False, True]


def test_split_and_paths_give_the_episodes_back() -> None:
    found = batch(3, 1, 2)
    again = EpisodeBatch.concatenate(list(found.split()))
    for name in ("observations", "last_observations", "rewards", "step_types", "lengths"):
        assert np.array_equal(getattr(again, name), getattr(found, name))
    paths = found.to_list()
    assert [len(path["rewards"]) for path in paths] == [3, 1, 2]
    assert paths[2]["observations"].tolist() == [[200, 201], [202, 203]]
    assert paths[2]["env_infos"]["x"].tolist() == [0, 1]
    assert paths[1]["episode_infos"]["seed"].tolist() == [1]


def test_rows_that_do_not_fit_are_refused() -> None:
    good = batch(3)
    with pytest.raises(ArgumentError, match="rewards"):
        EpisodeBatch(
            good.observations,
            good.last_observations,
            good.actions,
            good.rewards[:2],
            good.step_types,
            good.lengths,
        )
    with pytest.raises(ArgumentError):
        EpisodeBatch.concatenate([])


def test_values_of_different_shapes_become_objects() -> None:
    assert stack([np.zeros(2), np.zeros(3)]).dtype == object
    assert stack([{"a": 1}, {"b": 2}]).shape == (2,)


def test_padding_and_garages_lists() -> None:
    one = batch(3, 1, 2)
    longest = int(one.lengths.max())
    assert one.padded_rewards.shape == one.valids.shape == (len(one), longest)
    assert one.valids.sum(axis=1).tolist() == one.lengths.tolist()
    assert np.array_equal(one.padded_observations[one.valids == 1], one.observations)
    assert one.padded_actions[one.valids == 0].sum() == 0
    assert [len(rows) for rows in one.observations_list] == one.lengths.tolist()
    again = EpisodeBatch.from_list(None, one.to_list())
    for name in ("observations", "last_observations", "actions", "rewards", "step_types", "lengths"):
        assert np.array_equal(getattr(again, name), getattr(one, name)), name
    paths = [{k: v for k, v in path.items() if k != "step_types"} for path in one.to_list()]
    assert EpisodeBatch.from_list(None, paths).terminals.tolist() == one.dones.tolist()
    for path in paths:
        path["terminals"] = path.pop("dones")
        del path["next_observations"]
    older = EpisodeBatch.from_trajectory_list(None, paths)
    assert older.terminals.tolist() == one.terminals.tolist()
    assert [path["rewards"].tolist() for path in older.to_trajectory_list()] == [
        path["rewards"].tolist() for path in paths
    ]
    with pytest.raises(ArgumentError, match="has no 'actions'"):
        EpisodeBatch.from_list(None, [{"observations": [0], "rewards": [0], "terminals": [True]}])
    assert (
        len(EpisodeBatch.concatenate(one, one)) == len(EpisodeBatch.concatenate([one, one])) == 2 * len(one)
    )


def test_padding_of_all_that_a_step_has() -> None:
    one = batch(3, 1, 2)
    valid = one.valids == 1
    assert np.array_equal(one.padded_next_observations[valid], one.next_observations)
    assert np.array_equal(one.padded_step_types[valid], one.step_types)
    assert one.padded_step_types.dtype == np.int8
    assert one.padded_env_infos["x"].tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 0]]
    texts = np.array(["a", {"b": 1}, None, "c", "d", "e"], dtype=object)
    given = replace(one, agent_infos={"u": np.ones((6, 2)), "o": texts}, env_spec="spec")
    assert given.padded_agent_infos["u"].shape == (3, 3, 2)
    assert given.padded_agent_infos["o"][1].tolist() == ["c", None, None]
    assert [part.env_spec for part in given.split()] == ["spec"] * 3
    assert EpisodeBatch.concatenate(given, one).env_spec == "spec"
    assert EpisodeBatch.from_list("other", given.to_list()).env_spec == "other"
