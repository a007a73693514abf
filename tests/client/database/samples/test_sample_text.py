from __future__ import annotations

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
