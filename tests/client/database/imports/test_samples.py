from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.written_runs import MakeRun

import rla_client.database
from rla_client.contract.errors import ArgumentError
from rla_client.database.imports.samples import import_samples


def test_dumps_of_a_trainer_become_samples_once(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    index = make_run()
    dump = tmp_path / "rollouts"
    dump.mkdir()
    for step in (2, 10):
        rows = [{"input": f"p{n}", "output": f"c{n}", "score": n, "step": step, "ids": [1]} for n in range(3)]
        (dump / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (dump / "notes.txt").write_text("nothing")
    done = import_samples(root, "task", index, dump, 5.0)
    assert (done.rows, done.there) == (6, False)
    samples = rla_client.database.open(root).samples()
    assert [row["step"] for row in samples] == [2, 2, 2, 10, 10, 10]
    (first, *_) = samples
    assert (first["prompt"], first["completion"], first["reward"]) == ("p0", "c0", 0)
    assert first.keys().isdisjoint({"ids", "input", "_step"})
    again = import_samples(root, "task", index, dump, 6.0)
    assert again.there
    assert len(rla_client.database.open(root).samples()) == 6


def test_parquet_of_trl(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {"step": [7], "prompt": ["p"], "completion": ["c"], "accuracy": [0.5], "advantage": [1.0]}
    )
    pq.write_table(table, tmp_path / "completions_00007.parquet")
    import_samples(root, "task", make_run(), tmp_path / "completions_00007.parquet", 5.0)
    (row,) = rla_client.database.open(root).samples()
    assert (row["step"], row["rewards"], row["reward"]) == (7, {"accuracy": 0.5}, 0.5)


@pytest.mark.parametrize("text", ["{", "5\n", "[1]\n", ""])
def test_what_is_not_understood_writes_nothing(
    root: Path, make_run: MakeRun, tmp_path: Path, text: str
) -> None:
    index = make_run()
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ArgumentError):
        import_samples(root, "task", index, tmp_path / "x.jsonl", 5.0)
    assert not list((root / "samples").rglob("*.gz"))
    with pytest.raises(ArgumentError, match="no file of samples"):
        import_samples(root, "task", index, root / "code", 5.0)
