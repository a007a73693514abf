"""Sweeps with real drivers, and what becomes of them when drivers, runs or the machine die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.sweep_lab import NAME, REPOSITORY, Lab
from support.waiting import TIME_FACTOR, lives, wait_until

from rla_client.launcher.pending_streams import await_end
from rla_client.sweep.driver import MAX_KILLS

further = pytest.mark.further


def test_each_run_once_and_what_it_finds(lab: Lab) -> None:
    lab.write()
    lab.open_gate()
    told = lab.run()
    assert told.endswith("3 finished\n")
    assert sorted(one["arguments"] for one in lab.log("end")) == [["--lr", "1"], ["--lr", "2"], ["--lr", "3"]]
    journal = lab.journal()
    assert {one["folder"] for one in lab.log()} == {str(lab.folder)}
    assert {one["root"] for one in lab.log()} == {str(lab.root)}
    assert {one["id"] for one in lab.log()} == {f"lr-{journal.ident}-{number}" for number in (1, 2, 3)}
    assert lab.output(2) == "said --lr 2\n"
    assert lab.run().endswith("3 finished\n")
    assert len(lab.log("begin")) == 3, "what is done is skipped"


def test_no_more_than_parallel_at_a_time(lab: Lab) -> None:
    lab.write(parameters={"lr": list(range(6))})
    driver = lab.start()
    lab.wait_for("begin", 2)
    assert lab.states().count("running") == 2
    lab.open_gate()
    assert lab.end(driver).endswith("6 finished\n")
    going = most = 0
    for one in lab.log():
        going += 1 if one["what"] == "begin" else -1
        most = max(most, going)
    assert most <= 2


@pytest.mark.slow
def test_a_failed_run_is_started_again_and_tells_why(lab: Lab) -> None:
    lab.shell('echo try >>"tries$1"; echo "lr $1 is too high"; [ "$1" = 1 ] || exit 7', retries=2)
    told = lab.run(code=1)
    assert "1 finished 2 failed\n" in told
    assert "`rla sweep status lr` shows why" in told
    assert [len((lab.folder / f"tries{n}").read_text().split()) for n in (1, 2, 3)] == [1, 3, 3]
    run = lab.journal().runs[2]
    assert (run.failures, run.attempts, run.reasons) == (3, 3, ["exit status 7: lr 2 is too high"] * 3)
    lab.run(code=1)
    assert lab.journal().runs[2].attempts == 3, "it is over"
    lab.run("resume", "--failed", code=1)
    assert [len((lab.folder / f"tries{n}").read_text().split()) for n in (1, 2, 3)] == [1, 6, 6]


def test_the_reason_of_a_program_that_prints_boxes(lab: Lab) -> None:
    lab.shell("echo '╭─ Error ─╮\n│ no such option: --lr │\n╰─────────╯\n '; exit 2", parameters={"lr": [1]})
    lab.run(code=1)
    assert lab.journal().runs[1].reason == "exit status 2: no such option: --lr"


def test_the_reason_of_an_error_with_a_hint(lab: Lab) -> None:
    lab.shell("printf 'RlaError: no such thing\\nhint: did you mean it?\\n'; exit 1", parameters={"lr": [1]})
    assert "exit status 1: RlaError: no such thing; hint: did you mean it?\n" in lab.run(code=1)


def test_what_a_run_prints_cannot_steer_the_terminal(lab: Lab) -> None:
    lab.shell("printf 'bad \\033[31mred\\n'; exit 1", parameters={"lr": ["a\nb"]})
    assert "run 1 failed  lr=a?b: exit status 1: bad ?[31mred\n" in lab.run(code=1)


def test_a_run_that_is_killed_each_time_ends_as_failed(lab: Lab) -> None:
    lab.shell("echo try >>tries; kill -9 $$", parameters={"lr": [1]})
    told = lab.run(code=1)
    assert "1 failed\n" in told
    assert len((lab.folder / "tries").read_text().split()) == MAX_KILLS + 1
    run = lab.journal().runs[1]
    assert (run.kills, run.failures, run.reason) == (MAX_KILLS + 1, 0, "killed by SIGKILL")


def test_a_program_of_its_own_fault_is_not_killed(lab: Lab) -> None:
    lab.shell("kill -SEGV $$", parameters={"lr": [1]})
    lab.run(code=1)
    run = lab.journal().runs[1]
    assert (run.kills, run.failures, run.attempts) == (0, 1, 1)
    assert run.reason.startswith("exit status 139")


def test_a_program_that_cannot_be_run(lab: Lab) -> None:
    plain = lab.folder / "plain"
    plain.write_bytes(b"\x7fELF no program")
    plain.chmod(0o755)
    lab.write(command=["./plain", "{lr}"])
    lab.run(code=1)
    assert "plain" in lab.journal().runs[1].reason
    lab.write(command=["./none", "{lr}"])
    assert "error: the command's program './none' is not there" in lab.run(code=1)


def test_what_a_run_leaves_behind_holds_nothing_up(lab: Lab) -> None:
    lab.shell("sleep 1000 & echo $! >left$1", resources={"parallel": 1})
    assert lab.run().endswith("3 finished\n")
    left = [int((lab.folder / f"left{n}").read_text()) for n in (1, 2, 3)]
    wait_until(lambda: not any(map(lives, left)))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_runs_of_a_dead_driver_are_watched_by_the_next(lab: Lab, how: signal.Signals, tmp_path: Path) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    lab.end(driver, how)
    assert "nobody drives it" in lab.run("status")
    after = lab.start("resume", cwd=tmp_path)
    wait_until(lambda: lab.journal().driver() == after.pid, 60)
    assert len(lab.log("begin")) == 2, "they go on"
    lab.open_gate()
    assert lab.end(after).endswith("3 finished\n")
    assert len(lab.log("begin")) == 3
    assert {one["folder"] for one in lab.log()} == {str(lab.folder)}, (
        "in the folder where the sweep was begun"
    )


def test_an_end_is_known_only_with_its_exit_status(lab: Lab) -> None:
    """Between the end of a program and its exit status in the file, a driver must not take it for lost."""
    lab.write()
    driver = lab.start()
    begun = lab.wait_for("begin", 2)
    programs = [psutil.Process(one["pid"]) for one in begun]
    shells = [shell for one in programs if (shell := one.parent()) is not None]
    assert len(shells) == 2
    lab.end(driver, signal.SIGKILL)
    for shell in shells:
        shell.suspend()
    lab.open_gate()
    wait_until(lambda: all(one.status() == "zombie" for one in programs), 60)
    after = lab.start("resume")
    wait_until(lambda: lab.journal().driver() == after.pid, 60)
    lab.wait_for("end", 2)
    for shell in shells:
        shell.resume()
    assert lab.end(after).endswith("3 finished\n")
    assert len(lab.log("begin")) == 3


def test_runs_that_ended_while_nobody_looked(lab: Lab) -> None:
    lab.write(command=[sys.executable, "program.py", "{args}"], parameters={"lr": [1, 2, 3, 4]})
    driver = lab.start()
    begun = lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGKILL)
    os.kill(begun[0]["pid"], signal.SIGKILL)
    lab.open_gate()
    wait_until(lambda: not any(map(lives, lab.groups())), 60)
    assert lab.run().endswith("4 finished\n")
    killed = int(begun[0]["arguments"][1])
    run = lab.journal().runs[killed]
    assert (run.attempts, run.kills, run.reasons) == (2, 1, ["killed by SIGKILL"])
    assert len(lab.log("begin")) == 5


def test_a_sweep_that_cannot_be_started_leaves_nothing(lab: Lab) -> None:
    lab.write(resources={"cpus": 4096})
    assert "this machine has" in lab.run(f"{NAME}.yaml", code=1)
    assert "has no sweep yet" in lab.run("status", code=1)


@pytest.mark.slow
def test_a_second_driver_is_refused(lab: Lab) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    for words in ((f"{NAME}.yaml",), ("resume",)):
        told = lab.run(*words, code=1)
        assert f"is being run already by process {driver.pid} on" in told
    lab.open_gate()
    assert lab.end(driver).endswith("3 finished\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "number", "runs_go_on"),
    [
        (("--on-interrupt", "leave"), signal.SIGINT, True),
        pytest.param(("--on-interrupt", "stop"), signal.SIGINT, False, marks=further),
        ((), signal.SIGINT, False),
        pytest.param(("--on-interrupt", "leave"), signal.SIGTERM, True, marks=further),
        ((), signal.SIGTERM, False),
    ],
)
def test_interrupts(lab: Lab, words: tuple[str, ...], number: int, runs_go_on: bool) -> None:
    path = lab.write()
    driver = lab.start(path.name, *words)
    lab.wait_for("begin", 2)
    told = lab.end(driver, number)
    assert driver.returncode == 3
    assert "`rla sweep resume lr` continues the sweep" in told
    assert lab.journal().driver() is None
    if runs_go_on:
        assert "live runs continue; " in told
        assert lab.states() == ["running", "running", "waiting"]
        assert not lab.log("terminated")
    else:
        assert lab.states() == ["stopped", "stopped", "waiting"]
        assert len(lab.log("terminated")) == 2
    lab.open_gate()
    assert lab.run("resume").endswith("3 finished\n")
    assert len(lab.log("begin")) == (3 if runs_go_on else 5)
    assert [run.kills for run in lab.journal().runs.values()] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("leave", [False, True])
def test_stop_from_elsewhere(lab: Lab, leave: bool) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    assert "the sweep lr has ended" in lab.run("stop", *(["--leave"] if leave else []))
    lab.end(driver)
    assert driver.returncode == 3
    assert lab.states() == (["running"] * 2 if leave else ["stopped"] * 2) + ["waiting"]
    lab.open_gate()
    assert lab.run("resume").endswith("3 finished\n")


@pytest.mark.slow
def test_stop_without_a_driver_ends_what_was_left(lab: Lab) -> None:
    lab.write()
    assert "has no sweep yet" in lab.run("stop", code=1)
    driver = lab.start()
    lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGKILL)
    assert lab.run("stop", "--leave") == "nobody drives the sweep lr\n"
    assert lab.run("stop") == "2 runs left by an earlier driver were stopped\n"
    assert len(lab.log("terminated")) == 2
    assert lab.states() == ["stopped", "stopped", "waiting"]
    assert lab.run("stop") == "nobody drives the sweep lr\n"
    lab.open_gate()
    assert lab.run("resume").endswith("3 finished\n")


def test_stop_without_a_driver_needs_no_sampler_and_plans_nothing(lab: Lab) -> None:
    pytest.importorskip("optuna", reason="needs optuna")
    space: dict[str, Any] = {"parameters": {"lr": {"uniform": [0, 1]}}, "method": "optuna", "metric": "score"}
    lab.write(**space, trials=3, resources={"parallel": 1})
    driver = lab.start()
    lab.wait_for("begin", 1)
    lab.end(driver, signal.SIGKILL)
    (lab.folder / "without" / "optuna").mkdir(parents=True)
    (lab.folder / "without" / "optuna" / "__init__.py").write_text("raise ImportError('none here')")
    hidden = {"PYTHONPATH": os.pathsep.join([str(lab.folder / "without"), str(REPOSITORY)])}
    assert "method optuna needs optuna" in lab.run("resume", code=1, environment=hidden)
    told = lab.run("stop", environment=hidden)
    assert told == "1 run left by an earlier driver was stopped\n"
    assert lab.states() == ["stopped"]


def test_what_stop_says_of_runs_without_a_driver(lab: Lab) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGKILL)
    stopped = json.loads(lab.run("stop", "--json"))
    assert stopped == {"name": NAME, "ended": True, "stopped": 2}
    assert json.loads(lab.run("stop", "--json")) == {"name": NAME, "ended": False, "stopped": 0}
    driver = lab.start()
    lab.wait_for("begin", 4)
    lab.end(driver, signal.SIGKILL)
    lab.open_gate()
    wait_until(lambda: all(map(lab.journal().has_ended, [*lab.journal().runs.values()][:2])), 60)
    assert lab.run("stop") == "the runs that an earlier driver of lr left had ended already\n"
    assert lab.states() == ["finished", "finished", "waiting"]


@pytest.mark.slow
def test_runs_that_ended_without_a_driver_are_not_shown_as_running(lab: Lab) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGKILL)
    assert "2 running, 1 waiting; nobody drives it\n" in lab.run("status")
    lab.open_gate()
    wait_until(lambda: all(map(lab.journal().has_ended, [*lab.journal().runs.values()][:2])), 60)
    assert "; nobody drives it, and 2 of those running have ended since\n" in lab.run("status")
    ended = lab.journal().path(lab.journal().runs[1], "exit")
    os.utime(ended, (1e9, 1e9))
    lab.run("resume")
    assert lab.journal().runs[1].ended == 1e9  # not when it was seen


@pytest.mark.slow
def test_a_run_that_does_not_end_when_asked_is_killed(lab: Lab) -> None:
    lab.shell("trap '' TERM; echo x >ready$1; while :; do sleep 0.01; done", parameters={"lr": [1, 2]})
    script = (
        "from rla_client.sweep import driver; driver.GRACE_S = 0.2\n"
        "import sys; sys.argv[0] = 'rla'; from rla_client.cli.app import main; main()"
    )
    command = [sys.executable, "-c", script, "sweep", f"{NAME}.yaml", "-d", str(lab.root)]
    driver = subprocess.Popen(
        command, cwd=lab.folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    lab.started.append(driver)
    wait_until(lambda: all((lab.folder / f"ready{n}").exists() for n in (1, 2)), 60)
    lab.end(driver, signal.SIGTERM)
    assert lab.states() == ["stopped", "stopped"]
    wait_until(lambda: not lab.groups(), 30)


@pytest.mark.slow
def test_a_file_that_grew(lab: Lab) -> None:
    lab.open_gate()
    lab.write(parameters={"lr": [1, 2]}, seeds=2)
    lab.run()
    lab.write(parameters={"lr": [1, 3, 2]}, seeds=3)
    assert lab.run().endswith("9 finished\n")
    assert len(lab.log("end")) == 9
    assert len({tuple(one["arguments"]) for one in lab.log("end")}) == 9
    assert len({one["id"] for one in lab.log("end")}) == 9
    trials = {(run.trial, run.parameters["lr"]) for run in lab.journal().runs.values()}
    assert trials == {(1, 1), (2, 2), (3, 3)}, "one value of lr each"
    lab.write(parameters={"lr": [3, 4, 1]}, seeds=1)
    lab.run()
    assert [(run.trial, run.parameters) for run in lab.journal().runs.values()][9:] == [
        (4, {"lr": 4, "seed": 0})
    ]


@pytest.mark.slow
def test_more_random_trials(lab: Lab) -> None:
    lab.open_gate()
    space: dict[str, Any] = {"parameters": {"lr": {"uniform": [0, 1]}}, "method": "random"}
    lab.write(**space, trials=3)
    lab.run()
    lab.write(**space, trials=5)
    assert lab.run().endswith("5 finished\n")
    assert len(lab.log("end")) == 5


@pytest.mark.slow
def test_what_a_file_no_longer_asks_for_is_dropped(lab: Lab) -> None:
    lab.write(parameters={"lr": [1, 2, 3, 4]}, resources={"parallel": 1})
    driver = lab.start()
    lab.wait_for("begin", 1)
    lab.run("stop", "--leave")
    lab.end(driver)
    lab.write(parameters={"lr": [3]})
    lab.open_gate()
    assert lab.run().endswith("2 finished 2 dropped\n"), "what ran has ended, too"
    assert lab.states() == ["finished", "dropped", "finished", "dropped"]
    assert "2 dropped" in lab.run("status")
    assert lab.run("resume").endswith("2 finished 2 dropped\n")
    lab.write(parameters={"lr": [1, 2, 3]})
    assert lab.run().endswith("3 finished 1 dropped\n"), "it asks for it again"


@pytest.mark.slow
def test_a_dropped_run_that_is_killed_is_not_started_again(lab: Lab) -> None:
    lab.write(parameters={"lr": [1, 2]})
    driver = lab.start()
    begun = lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGKILL)
    lab.write(parameters={"new": [1], "lr": [2]})
    after = lab.start()
    wait_until(lambda: len(lab.states()) == 3, 60)
    first = next(one for one in begun if one["arguments"] == ["--lr", "1"])
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: lab.states()[0] == "dropped", 60)
    lab.open_gate()
    assert lab.end(after).endswith("2 finished 1 dropped\n")
    assert len(lab.log("begin")) == 3


def test_a_relative_data_root(lab: Lab, tmp_path: Path) -> None:
    path = lab.write()
    lab.open_gate()
    lab.run(path.name, "-d", "sub/däta", told=False)
    assert {one["root"] for one in lab.log()} == {str(lab.folder / "sub" / "däta")}
    assert (lab.folder / "sub" / "däta" / "local" / "sweeps" / NAME).is_dir()
    told = lab.run("status", "-d", f"{lab.folder.name}/sub/däta", told=False, cwd=tmp_path)
    assert "3 finished" in told


@pytest.mark.slow
def test_the_data_root_of_the_environment_and_the_default(lab: Lab, tmp_path: Path) -> None:
    path = lab.write()
    lab.open_gate()
    lab.run(path.name, told=False, environment={"RLA_DATA_ROOT": str(tmp_path / "other root")})
    assert {one["root"] for one in lab.log()} == {str(tmp_path / "other root")}
    lab.run(path.name, told=False)
    assert lab.log()[-1]["root"] == str(lab.folder / "data")
    assert "3 finished" in lab.run("status", told=False)


@pytest.mark.slow
def test_from_another_folder(lab: Lab, tmp_path: Path) -> None:
    path = lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    lab.end(driver, signal.SIGTERM)
    lab.open_gate()
    told = lab.run(str(path), cwd=tmp_path)
    assert f"(the sweep lr was started in {lab.folder}; its runs use that working folder)\n" in told
    assert {one["folder"] for one in lab.log()} == {str(lab.folder)}


def test_the_folder_of_a_sweep_is_gone(lab: Lab, tmp_path: Path) -> None:
    path = lab.write()
    lab.open_gate()
    lab.run()
    lab.folder.rename(tmp_path / "moved")
    told = lab.run(str(tmp_path / "moved" / path.name), cwd=tmp_path, code=1)
    assert f"{lab.folder}, where the sweep was started, no longer exists" in told


def test_two_sweeps_at_once_share_gpus(lab: Lab) -> None:
    resources = {"gpus": 1, "parallel": 4}
    names = ("one", "other")
    for name in names:
        lab.write(name, resources=resources, parameters={"sweep": name, "lr": [1, 2, 3]})
    drivers = [lab.start(f"{name}.yaml", environment={"CUDA_VISIBLE_DEVICES": "0,1"}) for name in names]
    lab.wait_for("begin", 2)
    lab.open_gate()
    for driver in drivers:
        assert lab.end(driver).endswith("3 finished\n")
    busy: set[str] = set()
    for one in lab.log():
        if one["what"] == "begin":
            assert one["gpus"] not in busy
            busy.add(one["gpus"])
        else:
            busy.remove(one["gpus"])
    assert {one["gpus"] for one in lab.log()} == {"0", "1"}


@pytest.mark.slow
def test_a_sweep_waits_for_a_gpu_without_spinning(lab: Lab) -> None:
    for name in ("one", "other"):
        lab.write(name, resources={"gpus": 1}, parameters={"sweep": name, "lr": [1]})
    gpu = {"CUDA_VISIBLE_DEVICES": "0"}
    first = lab.start("one.yaml", environment=gpu)
    lab.wait_for("begin", 1)
    second = lab.start("other.yaml", environment=gpu)
    wait_until(lambda: lab.states("other") == ["waiting"], 60)
    used = psutil.Process(second.pid).cpu_times().user
    threads = psutil.Process(second.pid).num_ctx_switches().voluntary
    wait_until(lambda: psutil.Process(second.pid).num_ctx_switches().voluntary > threads + 3, 60)
    assert psutil.Process(second.pid).cpu_times().user - used < 1
    lab.open_gate()
    assert lab.end(first).endswith("1 finished\n")
    assert lab.end(second).endswith("1 finished\n")


def whole(lrs: list[float], seeds: int = 2) -> dict[tuple[float, int], list[list[str]]]:
    """The rows of trainings that nobody disturbed."""
    return {
        (lr, seed): [[str(i), str(lr * i + seed)] for i in range(1, 21)]
        for lr in lrs
        for seed in range(seeds)
    }


def as_numbers(rows: dict[Any, list[list[str]]]) -> dict[Any, list[list[float]]]:
    return {key: [[float(one) for one in row] for row in found] for key, found in rows.items()}


def check_database(lab: Lab, lrs: list[float]) -> None:
    assert set(lab.states()) == {"finished"}
    for log in lab.root.glob("log/task/*/*/*/*"):
        await_end(log, 60 * TIME_FACTOR)  # a run is finished when its program is; its agent may still write
    assert as_numbers(lab.rows()) == as_numbers(whole(lrs))
    assert len(list(lab.root.glob("log/task/*/*/*/*/run.json"))) == len(lrs) * 2


def kill_driver(lab: Lab, agent: Any) -> None:
    for driver in lab.started:
        if driver.poll() is None:
            lab.end(driver, signal.SIGKILL)


def kill_runs(lab: Lab, agent: Any) -> None:
    kill_driver(lab, agent)
    for group in lab.groups():
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(group, signal.SIGKILL)


def kill_machine(lab: Lab, agent: Any) -> None:
    lab.kill_all(agents=True)
    agent.kill()
    agent.start()


LRS = [0.5, 0.25, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kill", [kill_driver, pytest.param(kill_runs, marks=further), pytest.param(kill_machine, marks=further)]
)
@pytest.mark.further
def test_twelve_trainings_whatever_is_killed(lab: Lab, agent: Any, kill: Callable[[Lab, Any], None]) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    lab.train(LRS)
    for done in (2, 6):
        lab.start()
        wait_until(lambda done=done: lab.states().count("finished") >= done or "failed" in lab.states(), 120)  # type: ignore[misc]
        kill(lab, agent)
    told = lab.run()
    assert told.endswith("12 finished\n")
    check_database(lab, LRS)


@pytest.mark.slow
@pytest.mark.further
def test_single_runs_that_are_killed_go_on_from_their_checkpoints(lab: Lab, agent: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    lab.train(LRS[:2])
    driver = lab.start()
    wait_until(lambda: sum(len(rows) for rows in lab.rows().values()) > 4, 60)
    for group in lab.groups():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            for program in psutil.Process(group).children():
                program.kill()
    assert lab.end(driver).endswith("4 finished\n")
    assert sum(run.kills for run in lab.journal().runs.values()) >= 1
    check_database(lab, LRS[:2])


def search(lab: Lab, trials: int = 12, **content: Any) -> None:
    space = {"lr": {"uniform": [0.0, 1.0]}}
    metric = {"name": "score", "goal": "maximize"}
    content = {"parameters": space, "seeds": 2, "metric": metric, **content}
    lab.write(
        command=[sys.executable, "score.py", "{args}"],
        method="optuna",
        trials=trials,
        **content,
    )
    (lab.folder / "score.py").write_text(SCORE)


SCORE = """
import argparse, os, sys
import rla_client
from rla_client import logger
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
open("given", "a").write(f"{given.lr} {given.seed}\\n")
if os.path.exists("fail") and given.lr > 0.5:
    sys.exit("too high")
config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
rla_client.init("task", rla_config=config, config=given, track=["lr", "seed"], code_root=os.getcwd())
logger.logkv("score", given.lr + given.seed)
logger.dumpkvs()
"""


@pytest.mark.further
@pytest.mark.slow
def test_optuna_is_told_means_and_goes_on_without_repeating(lab: Lab, agent: Any) -> None:
    pytest.importorskip("optuna", reason="needs optuna")
    search(lab)
    driver = lab.start()
    wait_until(lambda: lab.states().count("finished") >= 8 or "failed" in lab.states(), 120)
    lab.end(driver, signal.SIGKILL)
    assert lab.run("resume").endswith("24 finished\n")
    runs = list(lab.journal().runs.values())
    assert len({run.parameters["lr"] for run in runs}) == 12
    assert [run.trial for run in runs] == [trial for trial in range(1, 13) for _ in range(2)]
    given = (lab.folder / "given").read_text().split("\n")[:-1]
    assert len(set(given)) == 24
    told = json.loads(lab.run("status", "--json"))
    best = told["best"]
    few = told["too_few_seeds"]
    assert (few["best"], few["next"]) == (best[0]["trial"], best[1]["trial"])
    assert few["low"] < 0 < few["high"]
    assert f"too few seeds to tell trial {few['best']} from trial {few['next']}: " in lab.run("status")
    assert best[0]["score"] == pytest.approx(max(run.parameters["lr"] for run in runs) + 0.5)
    assert best[0]["runs"] == 2
    search(lab, trials=13)
    assert lab.run().endswith("26 finished\n")


@pytest.mark.slow
def test_optuna_with_a_parameter_called_seed(lab: Lab, agent: Any) -> None:
    pytest.importorskip("optuna", reason="needs optuna")
    space = {"lr": {"uniform": [0, 1]}, "seed": {"int": [0, 9]}}
    search(lab, trials=2, parameters=space)
    path = lab.folder / f"{NAME}.yaml"
    path.write_text(path.read_text().replace("seeds: 2\n", ""))
    assert lab.run().endswith("2 finished\n")
    assert lab.run().endswith("2 finished\n"), "nothing is run twice"


@pytest.mark.slow
def test_optuna_with_failing_trials_and_a_metric_that_is_missing(lab: Lab, agent: Any) -> None:
    pytest.importorskip("optuna", reason="needs optuna")
    (lab.folder / "fail").touch()
    search(lab, trials=6, seeds=1, metric={"name": "scroe"})
    told = lab.run(code=None)
    states = lab.states()
    assert set(states) <= {"finished", "failed"}
    assert len(states) == 6
    assert "recorded no scroe" in told
    assert "scroe" in lab.run("status")


@pytest.mark.slow
def test_a_metric_that_no_run_has(lab: Lab, agent: Any) -> None:
    command = [sys.executable, "score.py", "{args}"]
    lab.write(command=command, parameters={"lr": [0.1]}, seeds=1, metric="scroe")
    (lab.folder / "score.py").write_text(SCORE)
    missing = "no finished run has the metric 'scroe'\nhint: did you mean 'score'?\n"
    assert missing in lab.run()
    assert f"\n{missing}\n" in lab.run("status")
    lab.write(command=command, parameters={"lr": [0.1]}, seeds=1, metric="score")
    assert "hint" not in lab.run()
    assert "no finished run" not in lab.run("status")
