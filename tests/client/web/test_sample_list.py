"""Answers of the page about samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.sampled import write_samples

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@dataclass
class Sampled:
    """A run with samples, and a page that shows it."""

    root: Path
    index: str
    server: PageServer

    def add(self, *steps: int) -> None:
        rows = [
            {"prompt": f"p{n % 2}", "completion": f"step {{}} answer {n} " * 20, "reward": n / 10}
            for n in range(10)
        ]
        chunks = [
            (step, [{**row, "completion": str(row["completion"]).format(*[step] * 20)} for row in rows])
            for step in steps
        ]
        write_samples(self.root, "task", self.index, chunks)

    def ask(self, name: str, **asked: Any) -> Any:
        return self.server.ask(name, {"run": f"0/task/{self.index}", **asked})

    def refused(self, name: str, **asked: Any) -> str:
        return self.server.refused(name, {"run": f"0/task/{self.index}", **asked}, 400)


@pytest.fixture
def one(root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]) -> Sampled:
    return Sampled(root, make_run(table="task"), page_server(root))


def test_a_run_without_samples(one: Sampled) -> None:
    found = one.ask("samples", where="reward > 1", sort="reward")
    assert (found["count"], found["rows"], found["steps"], found["histogram"]) == (0, [], [], None)


def test_a_page_of_the_list_in_order(one: Sampled) -> None:
    one.add(1, 2)
    found = one.ask("samples", step=2, where="reward > 0.2", sort="reward", down=True, limit=3, offset=1)
    names = [name for name, _ in found["columns"]]
    assert (found["count"], found["matching"], found["steps"]) == (20, 7, [1, 2])
    assert [row[1 + names.index("reward")] for row in found["rows"]] == [0.8, 0.7, 0.6]
    assert all(row[1 + names.index("step")] == 2 for row in found["rows"])
    assert ["reward", True] in found["columns"]
    assert ["prompt", False] in found["columns"]


def test_a_bin_shows_its_samples(one: Sampled) -> None:
    one.add(1)
    bins = one.ask("samples")["histogram"]["bins"]
    assert sum(count for _, _, count in bins) == 10
    for low, high, count in bins:
        found = one.ask("samples", range=[low, high])
        assert found["matching"] == count
        assert found["histogram"]["bins"] == bins, "the others stay, to be chosen"


def test_what_is_new_is_there_at_the_next_look(one: Sampled) -> None:
    one.add(1)
    before = one.ask("samples")["changes"]
    assert one.ask("samples", where="reward >= 0")["changes"] == before
    one.add(3)
    found = one.ask("samples", where="reward >= 0")
    assert (found["changes"] > before, found["matching"]) == (True, 20)


def test_a_text_is_found_part_by_part(one: Sampled) -> None:
    one.add(1, 2)
    found: list[int] = []
    begin: int | None = 0
    while begin is not None:
        part = one.ask("samples_search", text="ANSWER 7".lower(), where="reward < 2", begin=begin)
        found += part["rows"]
        begin = part["next"]
    assert found == [7, 17]
    shown = one.ask("samples", among=found, sort="step", down=True)
    assert [row[0] for row in shown["rows"]] == [17, 7]


def test_samples_come_whole_and_a_prompt_over_steps(one: Sampled) -> None:
    one.add(1, 2)
    ((row, sample),) = one.ask("sample", rows=[12, 999])["samples"]
    assert (row, sample["step"], sample["completion"][:16]) == (12, 2, "step 2 answer 2 ")
    group = one.ask("sample", group=sample["group"], step=2, sort="reward", down=True)["samples"]
    assert [other["reward"] for _, other in group] == [0.8, 0.6, 0.4, 0.2, 0.0]
    told = one.ask("sample_story", group=sample["group"])
    assert [point[0] for point in told["curve"]] == [1, 2]
    assert told["prompt"] == "p0"
    assert ["added", "2"] in told["steps"][1]["pieces"]
    assert one.ask("sample_story", group="nobody")["steps"] == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"where": "rewrd > 1"}, "did you mean 'reward'"),
        ({"where": "reward = 1"}, "compare with =="),
        ({"sort": "nothing"}, "no column 'nothing'"),
        ({"step": "x"}, "step must be a number"),
        ({"range": [1]}, "range must be"),
        ({"among": ["x"]}, "whole numbers"),
    ],
)
def test_a_wrong_question_is_told(one: Sampled, asked: dict[str, Any], said: str) -> None:
    one.add(1)
    assert said in one.refused("samples", **asked)


def test_a_damaged_file_is_an_error_in_words(one: Sampled) -> None:
    one.add(1)
    (path,) = (one.root / "samples").rglob("*.gz")
    path.write_bytes(b"\x1f\x8b" + b"x" * 200)
    assert "samples.jsonl.gz" in one.refused("samples")
