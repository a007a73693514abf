from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from support.sampled import write_samples
from support.written_runs import MakeRun

import rla_client.database
from rla_client.contract.errors import ArgumentError
from rla_client.contract.item.prune_notes import PrunedFile, write_note
from rla_client.database.imports.samples import import_samples

LONG = "long" * 20


def test_dumps_of_a_trainer_become_samples_once(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    index = make_run()
    dump = tmp_path / "rollouts"
    dump.mkdir()
    for step in (2, 10):
        rows = [{"input": f"p{n}", "output": f"c{n}", "score": n, "step": step, "ids": [1]} for n in range(3)]
        (dump / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (dump / "notes.txt").write_text("nothing")
    done = import_samples(root, "task", index, dump, 5.0)
    assert (done.rows, done.there, done.withheld) == (6, 0, ["ids"])
    samples = rla_client.database.open(root).samples()
    assert [row["step"] for row in samples] == [2, 2, 2, 10, 10, 10]
    (first, *_) = samples
    assert (first["prompt"], first["completion"], first["reward"]) == ("p0", "c0", 0)
    assert first.keys().isdisjoint({"ids", "input", "_step"})
    again = import_samples(root, "task", index, dump, 6.0)
    assert (again.rows, again.there) == (0, 6)
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


@pytest.mark.parametrize(
    ("path", "columns", "name"),
    [
        ("rollouts/5.jsonl", {}, "train"),
        ("validation/5.jsonl", {}, "eval"),  # trainer.validation_data_dir of verl
        ("dumped_evals/global_step_5_evals/gsm8k.jsonl", {}, "eval"),  # SkyRL
        ("val_data_step5.jsonl", {}, "eval"),  # NeMo-RL
        ("step_5/eval_rollouts.jsonl", {}, "eval"),  # prime-rl
        ("eval-rollout/a.jsonl", {}, "eval"),  # AReaL
        ("test.jsonl", {}, "eval"),
        ("retrieval/latest.jsonl", {}, "train"),
        ("5.jsonl", {"split": "validation"}, "eval"),
        ("5.jsonl", {"split": 3, "mode": "train"}, "train"),
    ],
)
def test_completions_of_an_evaluation_are_called_so(
    root: Path, make_run: MakeRun, tmp_path: Path, path: str, columns: dict[str, object], name: str
) -> None:
    (file := tmp_path / "dump" / path).parent.mkdir(parents=True)
    file.write_text(json.dumps({"input": "p", "output": "c", **columns}) + "\n")
    for number, (source, given) in enumerate(((file, None), (tmp_path / "dump", None), (file, "mine"))):
        index = make_run(number=number)
        import_samples(root, "task", index, source, 5.0, name=given)
        (row,) = rla_client.database.open(root).samples(index)
        assert row["name"] == (given or name)


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


def imported(root: Path, index: str, source: Path) -> list[dict[str, Any]]:
    import_samples(root, "task", index, source, 5.0)
    return list(rla_client.database.open(root).samples())


def test_tables_of_wandb_count_each_row_once(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    columns = ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"]
    rows = [[1, "p", "12", 0.5, "q", "b", 1], [2, "p", "c", 0.0, None, None, None]]
    folder = tmp_path / "media" / "table"
    folder.mkdir(parents=True)
    for number, step in enumerate((1, 2), 1):
        content = {"columns": columns, "data": rows[:number], "ncols": 7, "nrows": number}
        (folder / f"generations_{step}_0af{step}.table.json").write_text(json.dumps(content))
    other = {"columns": ["global_step", "text", "reward"], "data": [[7, "p c", 1.0]]}
    (folder / "samples_3_0b.table.json").write_text(json.dumps(other))
    found = imported(root, make_run(), tmp_path / "media")
    assert [(row["step"], row.get("prompt"), row["completion"], row["reward"]) for row in found] == [
        (1, "p", "12", 0.5), (1, "q", "b", 1), (2, "p", "c", 0.0), (7, None, "p c", 1.0),
    ]  # fmt: skip


def test_tables_as_csv(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "metrics.csv").write_text("a\n1\n")
    long = "x" * 200_000
    (dump / "5-completions.csv").write_text(
        f"step,prompt,completion,accuracy,advantage\n5,1,{long},0.5,-1.0\n"
    )
    messages = json.dumps([{"role": "user", "content": "4"}]).replace('"', '""')
    (dump / "9-samples.csv").write_text(f'messages,reward,task\n"{messages}",2,t\n7,,\n')
    first, second, third = imported(root, make_run(), dump)
    assert (first["step"], first["prompt"], first["completion"], first["rewards"]) == (
        5,
        "1",
        long,
        {"accuracy": 0.5},
    )
    assert (second["step"], second["completion"][0]["content"], second["reward"]) == (9, "4", 2)
    assert (third["completion"], third.get("reward")) == ("7", None)


def test_tables_of_trackio(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    table = {"_type": "trackio.table", "_value": [{"prompt": "p", "completion": "c", "rewards": 0.5}]}
    (dump / "table_4.json").write_text(json.dumps(table))
    (row,) = imported(root, make_run(), dump)
    assert (row["step"], row["prompt"], row["reward"]) == (4, "p", 0.5)


def test_what_the_run_has_already_is_not_imported_again(
    root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    index = make_run()
    logged: list[dict[str, Any]] = [
        {"prompt": "p", "completion": "c", "reward": 1.0},
        {"prompt": "p", "completion": "c", "reward": 1.0},
        {"prompt": "p", "completion": f"{LONG}\n… 20 characters cut …\n{LONG}", "cut": ["completion"]},
        {"prompt": "p", "completion": [{"role": "assistant", "content": "hi"}]},
        {"prompt": "p", "completion": '{"a": 1}'},
        {"prompt": "p", "completion": ""},
    ]
    write_samples(root, "task", index, [(5, logged)])
    dump = tmp_path / "results"
    dump.mkdir()
    with (dump / "5-completions.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["step", "prompt", "completion", "accuracy"])
        out.writerows([5, "p", "c", 0.5] for _ in range(3))
        out.writerow([5, "p", f"{LONG}{'x' * 20}{LONG}", 0.5])
        out.writerow([5, "p", '[{"role": "assistant", "content": "hi"}]', 0.5])
        out.writerow([5, "p", '{"a": 1}', 0.5])
        out.writerow([5, "p", "", 0.5])
        out.writerow([6, "p", "c", 0.5])
    done = import_samples(root, "task", index, dump, 5.0)
    assert (done.rows, done.there) == (2, 6)
    found = list(rla_client.database.open(root).samples())
    assert [(row["step"], row["completion"]) for row in found[6:]] == [(5, "c"), (6, "c")]
    for again in (dump, dump / "5-completions.csv", dump / ".." / "results"):
        done = import_samples(root, "task", index, again, 5.0)
        assert (done.file, done.rows, done.there) == (None, 0, 8)


def test_a_dump_that_grew_is_imported_by_what_is_new(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    index = make_run()
    (dump := tmp_path / "rollouts").mkdir()
    for step in (1, 2, 3):
        (dump / f"{step}.jsonl").write_text(json.dumps({"input": "p", "output": f"c{step}"}) + "\n")
        done = import_samples(root, "task", index, dump, 5.0)
        assert (done.rows, done.there) == (1, step - 1)
    samples = rla_client.database.open(root).samples()
    assert sorted(row["completion"] for row in samples) == ["c1", "c2", "c3"]
    assert len({row["id"] for row in samples}) == 3


def test_rows_without_completions_are_compared_as_a_whole(
    root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    index = make_run()
    path = tmp_path / "3.jsonl"
    path.write_text('{"task": "a", "score": 1}\n{"task": "b", "score": 1}\n')
    assert import_samples(root, "task", index, path, 5.0).rows == 2
    path.write_text('{"task": "a", "score": 1}\n{"task": "b", "score": 2}\n')
    done = import_samples(root, "task", index, path, 5.0)
    assert (done.rows, done.there) == (1, 1)


def test_samples_on_the_master_alone_are_fetched_first(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    index = make_run()
    path = write_samples(root, "task", index, [(5, [{"prompt": "p", "completion": "c"}])])
    (tmp_path / "5.jsonl").write_text('{"prompt": "p", "completion": "c"}\n')
    below = str(path.relative_to(root))
    write_note(path.parent, PrunedFile(below, path.stat().st_size, "", 0, "sftp://u@h/m", 0.0))
    assert import_samples(root, "task", index, tmp_path / "5.jsonl", 5.0).there == 1
    path.unlink()
    with pytest.raises(ArgumentError, match="transfer fetch"):
        import_samples(root, "task", index, tmp_path / "5.jsonl", 5.0)


def test_tables_of_trl_at_steps_that_generate_nothing_count_once(
    root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    (dump := tmp_path / "results").mkdir()
    for step in (1, 2):
        (dump / f"{step}-completions.csv").write_text(
            f"step,prompt,completion,accuracy,advantage\n{step},p,c,0.5,-1.0\n"
        )
    index = make_run()
    assert import_samples(root, "task", index, dump, 5.0, {"num_iterations": 2}).rows == 1
    done = import_samples(root, "task", index, dump, 5.0, {"num_iterations": 1})
    assert (done.rows, done.there) == (1, 1)


def test_the_step_is_that_of_the_folder_where_it_says_one(
    root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    row = {"input_prompt": "p", "output_response": "c", "score": [0.0, 0.5, 1.0], "stop_reason": "stop"}
    evaluated = tmp_path / "dumped_evals" / "global_step_7_evals"  # of SkyRL
    evaluated.mkdir(parents=True)
    for name in ("math500", "gsm8k", "aime_2024"):
        (evaluated / f"{name}.jsonl").write_text(json.dumps({**row, "data_source": name}) + "\n")
    (evaluated / "aggregated_results.jsonl").write_text('{"eval/all/avg_score": 0.5}\n')
    found = imported(root, make_run(), tmp_path / "dumped_evals")
    assert {(row["name"], row["step"], row["reward"], row["finish"]) for row in found} == {
        ("eval", 7, 1.5, "stop")
    }
    assert [(row["prompt"], row["completion"]) for row in found] == [("p", "c")] * 3
    index = make_run(number=1)
    import_samples(root, "task", index, evaluated / "math500.jsonl", 5.0)
    (tmp_path / "math500.jsonl").write_text(json.dumps(row) + "\n")
    import_samples(root, "task", index, tmp_path / "math500.jsonl", 5.0)
    assert sorted(row["step"] for row in rla_client.database.open(root).samples(index)) == [0, 7]


def test_rollouts_of_areal_are_at_the_version_that_sampled_last(
    root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    for version, task in ((3, 881), (4, 7)):
        folder = tmp_path / "rollout" / str(version)
        folder.mkdir(parents=True)
        row = {"task_id": task, "head_version": 2, "tail_version": version, "reward": 1.0}
        (folder / f"{task}.jsonl").write_text(json.dumps({**row, "prompt": "p", "completion": "c"}) + "\n")
    found = imported(root, make_run(), tmp_path / "rollout")
    assert sorted((row["step"], row["policy_version"], row["task_id"]) for row in found) == [
        (3, 3, 881), (4, 4, 7),
    ]  # fmt: skip


def test_batches_of_one_of_nemo_rl(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    train = {"content": ["text"], "rewards": [0.5], "advantages": [[0.0, 0.25, 0.25]], "token_ids": [[1, 2]]}
    (tmp_path / "train_data_step6.jsonl").write_text(json.dumps({**train, "idx": 0}) + "\n")
    (tmp_path / "val_data_step6.jsonl").write_text(
        json.dumps({"content": [talk], "rewards": [1.0], "idx": 0}) + "\n"
    )
    first, second = imported(root, make_run(), tmp_path)
    assert (first["step"], first["completion"], first["reward"], first["advantage"]) == (6, "text", 0.5, 0.25)
    assert "token_ids" not in first
    assert (second["name"], second["completion"], second["reward"]) == ("eval", talk, 1.0)
    one = {"idx": 3, "prompt": talk[:1], "completion": talk[1:]}  # lists of one that are conversations
    (tmp_path / "9.jsonl").write_text(json.dumps(one) + "\n")
    (third,) = (row for row in imported(root, make_run(number=1), tmp_path / "9.jsonl") if row["step"] == 9)
    assert (third["prompt"], third["completion"]) == (talk[:1], talk[1:])


def _episode(number: int, *, advantages: list[float] | None = None) -> dict[str, Any]:
    """As prime-rl 0.8 writes one."""

    def node(parent: int | None, role: str, *, sampled: bool, **further: Any) -> dict[str, Any]:
        mask = [False, True] if sampled else [False]
        message = {"role": role, **further}
        given = {"advantages": advantages} if sampled and advantages else {}
        return {"parent": parent, "message": message, "sampled": sampled, "token_ids": [1] * len(mask),
                "mask": mask, **given}  # fmt: skip

    call = {"id": "1", "name": "calc", "arguments": "6*7"}
    nodes = [
        node(None, "user", sampled=False, content="what is 6 * 7?"),
        node(0, "assistant", sampled=True, content="given up"),  # another branch
        node(0, "assistant", sampled=True, reasoning_content="hm", tool_calls=[call]),
        node(2, "tool", sampled=False, content="42", tool_call_id="1"),
        node(3, "assistant", sampled=True, content="42"),
    ]
    trace = {
        "id": f"trace{number}", "nodes": nodes, "task": {"type": "T", "data": {"idx": 3, "answer": "42"}},
        "agent": {"name": "solver", "config": {}}, "metrics": {"turns": 2.0}, "stop_condition": "done",
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.25, "weight": 1.0}},
        "calls": [{"node": 4, "finish_reason": "stop"}, {"node": 2}], "errors": [],
    }  # fmt: skip
    return {
        "id": f"episode{number}", "env": {"id": "math", "name": "m"}, "task": {"type": "T", "key": "task3"},
        "group": {"id": f"group{number}"}, "traces": [trace], "errors": [{"type": "E", "message": "bad"}],
        "run": {"type": "train", "work": {"type": "train", "step": 4, "policy": {"start": 3, "end": 4}}},
    }  # fmt: skip


def test_a_column_that_is_called_trace_is_no_episodes(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": f"c{n}", "trace": trace} for n, trace in enumerate(["a", "a", {}])]
    (tmp_path / "rollout7.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = imported(root, make_run(), tmp_path)
    assert [(row["step"], row["completion"]) for row in found] == [(7, "c0"), (7, "c1"), (7, "c2")]


def test_an_episode_with_odd_scores_is_taken(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    episode = _episode(1)
    rewards = episode["traces"][0]["rewards"]
    rewards.update(
        none={"score": 1.0, "weight": None}, more={"score": float("inf")}, less={"score": float("-inf")}
    )
    (tmp_path / "traces.jsonl").write_text(f"{json.dumps(episode)}\n")
    assert len(imported(root, make_run(), tmp_path)) == 1


def test_episodes_of_prime_rl_are_samples_once(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    for kind in ("train", "eval"):
        for subset, given in (("all", None), ("effective", [0.5])):
            folder = tmp_path / "rollouts" / "step_5" / kind / subset
            folder.mkdir(parents=True)
            numbers = range(10, 13 - (subset == "effective")) if kind == "train" else range(1)
            lines = (json.dumps(_episode(number, advantages=given)) for number in numbers)
            (folder / "traces.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 1.0}\n')
    index = make_run()
    found = imported(root, index, tmp_path)
    assert [(row["name"], row["step"], row["trace"], row.get("advantage")) for row in found] == [
        ("eval", 5, "trace0", 0.5), ("train", 5, "trace10", 0.5), ("train", 5, "trace11", 0.5),
        ("train", 5, "trace12", None),
    ]  # fmt: skip
    first = found[1]
    assert [one["role"] for one in first["completion"]] == ["assistant", "tool", "assistant"]
    assert first["prompt"] == [{"role": "user", "content": "what is 6 * 7?"}]
    assert (first["reward"], first["rewards"]) == (0.75, {"right": 1.0, "short": 0.25})
    own = ("group", "env", "policy_version", "truth", "finish", "error", "tokens_prompt", "tokens_completion")
    assert [first[name] for name in own] == ["task3", "m", 4, "42", "stop", "E: bad", 4, 2]
    again = import_samples(root, "task", index, tmp_path, 5.0)
    assert again.rows == 0
    assert tmp_path / "metrics.jsonl" in again.skipped


def test_a_folder_without_samples_names_a_skipped_file(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step": 5, "loss": 1.0}\n')
    with pytest.raises(ArgumentError, match=r"none of 1 file.s. has .*metrics\.jsonl"):
        import_samples(root, "task", make_run(), folder, 5.0)
