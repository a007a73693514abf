from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rla_client.samples.choice import SampleCandidate, choose


def _step(groups: int, each: int, size: int = 10) -> list[SampleCandidate]:
    return [SampleCandidate(f"g{n // each}", float(n), size) for n in range(groups * each)]


def test_all_stay_where_there_is_room() -> None:
    assert choose(_step(2, 4), 8, 80, "1") == list(range(8))
    assert choose([], 0, 0, "1") == []


def test_the_same_whole_groups_stay_each_step_then_the_extremes() -> None:
    candidates = _step(16, 4)
    first, second = (choose(candidates, 16, 10_000, seed) for seed in ("1", "2"))
    assert len(first) == len(second) == 16
    whole = [n for n in range(16) if set(range(4 * n, 4 * n + 4)) <= set(first)]
    assert len(whole) == 3
    assert all(set(range(4 * n, 4 * n + 4)) <= set(second) for n in whole)
    assert {0, 63} & set(first) or {0 // 4, 63 // 4} & set(whole)


def test_without_rewards_or_with_nan_it_is_chance() -> None:
    candidates = [SampleCandidate(str(n), None if n % 2 else math.nan, 1) for n in range(100)]
    assert len(choose(candidates, 10, 100, "s")) == 10


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(), st.integers(0, 50)), max_size=30),
    st.integers(-2, 20),
    st.integers(-5, 300),
)
def test_never_more_than_the_limits_nor_in_another_order(
    plain: list[tuple[str, float | None, int]], max_rows: int, max_bytes: int
) -> None:
    candidates = [SampleCandidate(*one) for one in plain]
    kept = choose(candidates, max_rows, max_bytes, "seed")
    assert kept == sorted(set(kept))
    assert len(kept) <= max(max_rows, 0)
    assert sum(candidates[n].size for n in kept) <= max(max_bytes, 0)
    assert kept == choose(candidates, max_rows, max_bytes, "seed")
