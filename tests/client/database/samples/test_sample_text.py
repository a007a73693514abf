from __future__ import annotations

import time

from rla_client.database.samples.sample_text import cell_text, sample_text


def test_a_sample_is_its_facts_and_its_texts() -> None:
    row = {"id": "1", "reward": -0.5, "prompt": "why?", "completion": "so", "role": "", "extra": [1, 2]}
    assert sample_text(row) == "id 1  reward -0.5  extra [1, 2]\n--- prompt\nwhy?\n--- completion\nso"


def test_a_conversation_is_turn_by_turn() -> None:
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
    ]
    assert cell_text(talk) == '[user] hi\n{"type": "image"}\n[assistant]\n[tool call] {"name": "f"}'


def test_reasoning_stands_before_what_was_said() -> None:
    talk = [{"role": "assistant", "content": "42", "reasoning_content": "6 * 7"}]
    assert cell_text(talk) == "[reasoning] 6 * 7\n[assistant] 42"


def test_times_and_rewards_are_read_by_people() -> None:
    at = time.mktime((2026, 11, 30, 14, 49, 41, 0, 0, -1))
    row = {
        "timestamp": at,
        "rewards": {"correct": 0.0, "format": 0.7979277925060437},
        "empty": {},
        "big": 1e300,
    }
    assert sample_text(row) == (
        "timestamp 2026-11-30 14:49:41  rewards/correct 0  rewards/format 0.797928  empty {}  big 1e+300"
    )
    assert sample_text({"timestamp": 1e300}) == "timestamp 1e+300"
