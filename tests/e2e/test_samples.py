"""Samples of a run, from the training script through a real agent to those who read them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

from rla_client.contract.agent.places import Places

HEAD = """
import math, sys
import rla_client
from rla_client import log_samples
root = sys.argv[1]
def open_run(**kw):
    config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}, **kw.pop("config", {})}
    return rla_client.init("llm", config={"lr": 0.1}, rla_config=config, data_root=root, code_root=root, **kw)
def rows(step, count=8):
    return [{"prompt": f"what is {n // 2}?", "completion": f"step {step} answer {n}", "reward": float(n % 4)}
            for n in range(count)]
"""


def run_code(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a training script."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def rla(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def samples_of(root: Path, pattern: str = "samples.jsonl.gz") -> list[dict[str, Any]]:
    """The samples of the only run, read as anybody would."""
    (path,) = root.glob(f"samples/llm/*/*/*/*/{pattern}")
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def run_file(root: Path) -> dict[str, Any]:
    (path,) = root.glob("log/llm/*/*/*/*/run.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.usefixtures("agent")
def test_samples_of_each_form_are_there_once(tmp_path: Path) -> None:
    done = run_code(
        """
        run = open_run(config={"LOG_USED": ["csv", "stdout"]})
        run.log_samples(rows(0), step=0)
        columns = {"prompt": ["a", "b"], "reward": [1, 2], "policy_version": 7}
        log_samples(columns, step=1, name="eval", group=["g", "h"])
        try:
            import pandas
            frame = pandas.DataFrame({"prompt": ["c"], "reward": [3.0]})
        except ImportError:
            frame = [{"prompt": "c", "reward": 3.0}]
        rla_client.time_step_holder.set_time(5)
        log_samples(frame)
        talk = [{"role": "assistant", "content": "hi"}]
        for _ in range(2):
            log_samples([{"completion": talk, "token_ids": [1, 2], "x_logprobs": [0.1]}])
        log_samples([{"token_ids": [1, 2]}], tokens=True)
        run.close()
        """,
        tmp_path,
    )
    wait = samples_of(tmp_path)
    assert [row["completion"] for row in wait[:8]] == [f"step 0 answer {n}" for n in range(8)]
    assert [(row["step"], row["name"], row["group"], row.get("policy_version")) for row in wait[8:10]] == [
        (1, "eval", "g", 7),
        (1, "eval", "h", 7),
    ]
    assert (wait[10]["step"], wait[10]["reward"]) == (5, 3.0)
    assert wait[11].keys().isdisjoint({"token_ids", "x_logprobs"})
    assert wait[13]["token_ids"] == [1, 2]
    for column in ("token_ids", "x_logprobs"):
        assert done.stdout.count(f"column '{column}' is taken for token ids") == 1, done.stdout


@pytest.mark.usefixtures("agent")
def test_nothing_that_is_logged_raises(tmp_path: Path) -> None:
    done = run_code(
        r"""
        import decimal, collections
        class Odd:
            def __str__(self): raise RuntimeError("no")
            __repr__ = __str__
            def keys(self): raise OSError("no")
        class Row(dict):
            def items(self): raise RuntimeError("never")
        loop = []; loop.append(loop)
        deep = "x"
        for _ in range(500): deep = [deep]
        run = open_run()
        for bad in (5, None, "text", [5], {"a": [1], "b": [1, 2]}, [Row(a=1)], Odd(), [{"a": 1}] * 3):
            log_samples(bad, step="never" if isinstance(bad, list) and len(bad) == 3 else 1)
        log_samples([{"a": 1}], group=[1, 2, 3], step=2)
        log_samples([], step=3)
        log_samples([{}], step=3)
        log_samples([{
            "odd": Odd(), "loop": loop, "deep": deep, "big": 1 << 9000, "nan": math.nan, "sur": "\udc80",
            "\udc80": 1, 5: "five", "bytes": b"\xff", "set": {1, 2}, "dec": decimal.Decimal("1.5"),
            "id": "mine", "step": 99, "nul": "a\0b",
            "html": "<script>alert(1)</script>", "long": "y" * 3_000_000,
        }], step=4)
        run.log({"loss": 1.0}, step=4)
        run.close()
        """,
        tmp_path,
    )
    assert "Traceback" not in done.stderr
    (row,) = [one for one in samples_of(tmp_path) if one["step"] == 4]
    assert (row["_id"], row["_step"], row["dec"], row["5"], row["nul"]) == ("mine", 99, 1.5, "five", "a\0b")
    assert len(row["long"]) < 200_000
    assert row["cut"] == ["long"]
    assert run_file(tmp_path)["lost_others"] == 9
    assert run_file(tmp_path)["rows"] == 1


@pytest.mark.usefixtures("agent")
def test_each_picture_of_a_sample_has_a_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    run_code(
        """
        import os
        from PIL import Image
        run, address = open_run(), rla_client.run_address()
        def say(*colours):
            pictures = [Image.new("RGB", (2, 2), colour) for colour in colours]
            talk = [{"role": "user", "content": pictures}]
            log_samples([{"prompt": talk, "completion": str(colours)}], step=3)
        say("red")
        say("lime", "blue")
        if os.fork() == 0:
            rla_client.join(address, role="judge")
            say("white")
            rla_client.exp_manager.flush(30)
            os._exit(0)
        os.wait()
        run.flush(30)
        run.close()
        """,
        tmp_path,
    )
    from PIL import Image

    (results,) = tmp_path.glob("results/llm/*/*/*/*")
    rows = samples_of(tmp_path) + samples_of(tmp_path, "samples.judge.jsonl.gz")
    told = [[one["image"] for one in row["prompt"][0]["content"]] for row in rows]
    colours = [[Image.open(results / name).getpixel((0, 0)) for name in names] for names in told]
    assert colours == [[(255, 0, 0)], [(0, 255, 0), (0, 0, 255)], [(255, 255, 255)]]


@pytest.mark.usefixtures("agent")
def test_beyond_the_limits_whole_groups_stay_and_the_others_are_counted(tmp_path: Path) -> None:
    run_code(
        """
        run = open_run(config={"SAMPLES": {"step_max_rows": 16, "run_max_bytes": 20_000}})
        for step in range(3):
            log_samples(rows(step, 64), step=step)
        log_samples([{"prompt": "p", "completion": "z" * 50_000}], step=9)
        run.close()
        """,
        tmp_path,
    )
    found = samples_of(tmp_path)
    kept = [{row["group"] for row in found if row["step"] == step} for step in range(3)]
    whole = [
        [group for group in kept[0] if sum(r["group"] == group and r["step"] == step for r in found) == 2]
        for step in range(3)
    ]
    assert len(found) == 48
    assert len(whole[0]) >= 5
    assert len(set(whole[0]) & set(whole[1]) & set(whole[2])) >= 5, "the same prompts each step"
    listed = rla("samples", "--data-root", tmp_path, "-n", 3)
    assert f"{64 * 3 - 48 + 1} more were left out" in listed.stderr, listed.stderr


@pytest.mark.usefixtures("agent")
def test_the_worst_of_a_step_are_found_by_a_command(tmp_path: Path) -> None:
    run_code(
        "run = open_run()\nfor step in (99, 100): log_samples(rows(step, 64), step=step)\nrun.close()",
        tmp_path,
    )
    command = ("samples", "--data-root", tmp_path, "--step", "100")
    listed = rla(*command, "--sort", "reward", "-n", 10)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.count("\n") == 11
    assert "step 100 answer 0" in listed.stdout
    assert "10 of 64 that match, 128 samples" in listed.stderr
    found = json.loads(
        rla(*command, "--where", "reward > 2 and id != '67'", "--grep", "ANSWER", "--json").stdout or "[]"
    )
    assert found == []
    none = rla(*command, "--where", "reward > 99")
    assert "none of the 128 samples of" in none.stderr
    found = json.loads(
        rla(*command, "--where", "reward > 2", "--grep", "answer 7", "--json", "-n", 99).stdout
    )
    assert [row["completion"] for row in found] == ["step 100 answer 7"]
    shown = rla("samples", "--data-root", tmp_path, "--id", "64", "--diff", "0")
    assert "step [-99-]{+100+} answer 0" in shown.stdout
    wrong = rla(*command, "--where", "rewrd > 2")
    assert wrong.returncode == 1
    assert "did you mean 'reward'" in wrong.stderr
    assert "\x1b" not in rla(*command, "--text").stdout


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_resumed_run_has_each_sample_once_and_keeps_the_others_aside(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    code = """
        import os
        run = open_run(run_id="one", resume="allow")
        begin = run.load_checkpoint()[0] + 1 if run.get_timestep() else 0
        run.new_saver(var_prefix="", max_to_keep=2)
        for step in range(begin, 20):
            log_samples(rows(step, 4), step=step)
            run.log({"x": step}, step=step)
            if step == 7:
                run.save_checkpoint({"step": step})
                log_samples([{"completion": "late", "reward": 0}], step=step)
            if step == 12 and not begin:
                run.flush()
                os._exit(9)
        run.close()
        """
    assert run_code(code, tmp_path, check=False).returncode == 9
    assert run_code(code, tmp_path).returncode == 0
    found = samples_of(tmp_path)
    assert [row["completion"] for row in found] == [
        f"step {s} answer {n}" for s in range(20) for n in range(4)
    ]
    assert [row["id"] for row in found] == [str(number) for number in range(80)]
    aside = samples_of(tmp_path, "abandoned-1/samples.jsonl.gz")
    assert [row["completion"] for row in aside][:2] == ["late", "step 8 answer 0"]
    assert aside[-1]["completion"] == "step 12 answer 3"


@pytest.mark.usefixtures("agent")
def test_a_fork_goes_on_behind_the_samples_of_its_run(tmp_path: Path) -> None:
    run_code(
        "run = open_run()\nlog_samples(rows(1), step=1)\nrun.log({'x': 1}, step=1)\nrun.close()", tmp_path
    )
    (index,) = tmp_path.glob("log/llm/*/*/*/*")
    run_code(
        """
        from rla_client import fork_log_file_fn
        run = open_run()
        fork_log_file_fn(root, "llm", sys.argv[2], sync_timestep=True)
        log_samples(rows(2), step=2)
        run.close()
        """,
        tmp_path,
        "/".join(index.parts[-4:]).split("_", maxsplit=1)[0],
    )
    counts = sorted(
        gzip.decompress(path.read_bytes()).count(b"\n")
        for path in tmp_path.glob("samples/llm/*/*/*/*/samples.jsonl.gz")
    )
    assert counts == [8, 16]


def test_without_an_agent_they_wait_like_rows(agent: Any, places: Places, tmp_path: Path) -> None:
    agent.stop()
    stop_autostart(places)
    run_code("run = open_run()\nlog_samples(rows(1), step=1)\nrun.close()", tmp_path)
    assert not list(tmp_path.glob("samples/llm/*/*/*/*/*"))
    agent.start()
    agent.stop()
    assert len(samples_of(tmp_path)) == 8


@pytest.mark.usefixtures("agent")
def test_a_run_without_samples_has_no_folder_for_them(tmp_path: Path) -> None:
    run_code("run = open_run()\nrun.log({'x': 1}, step=1)\nrun.close()", tmp_path)
    assert run_file(tmp_path)["rows"] == 1
    assert not (tmp_path / "samples").exists()
    shown = rla("samples", "--data-root", tmp_path)
    assert shown.returncode == 0
    assert "has no samples" in shown.stderr
