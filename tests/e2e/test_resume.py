"""Resume, fork and load, each through real processes and a real agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.spooled import stop_autostart

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import stream_names

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "resume.py"
CONFIG = (
    "{'LOG_USED': ['csv', 'json', 'log', 'tensorboard'], 'BACKUP_CONFIG': {'backup_code_dir': ['nothing']}}"
)
HEAD = f"""
import sys
import numpy as np
from rla_client import exp_manager, logger, time_step_holder
root = sys.argv[1]
def open_run(**kw):
    exp_manager.configure('t', {CONFIG}, root, code_root=root, **kw)
    exp_manager.set_hyper_param(lr=0.1, deep={{'a': 1, 'b': 2}})
def step(i):
    time_step_holder.set_time(i)
    logger.record_tabular('x', float(np.random.rand()))
    logger.ma_record_tabular('x3', float(i), 3)
    logger.dump_tabular()
"""

pytest.importorskip("torch", reason="needs PyTorch")


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


def run_example(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), "--data-root", str(data), "--steps", "300", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def only(data: Path, pattern: str) -> Path:
    found = list(data.glob(pattern))
    assert len(found) == 1, found
    return found[0]


def item(data: Path, kind: str = "log", table: str = "t") -> Path:
    return only(data, f"{kind}/{table}/*/*/*/*")


def state_of(folder: Path) -> str:
    path = folder / "run.json"
    return json.loads(path.read_text())["state"] if path.exists() else ""


def rows(path: Path) -> pd.DataFrame:
    found: pd.DataFrame = pd.read_csv(path).drop(columns="timestamp")
    return found


def tb_steps(folder: Path, tag: str) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / "tb" / "events"))
    reader.Reload()
    return [event.step for event in reader.Scalars(tag)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.further)])
def test_killed_and_run_again_equals_uninterrupted(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any], ending: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run_example(whole).returncode == 0
    if ending == "SIGKILL":
        assert run_example(broken, "--kill-at", "173").returncode == -signal.SIGKILL
    else:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--data-root", str(broken), "--steps", "300"],
            stdout=subprocess.PIPE,
            pipesize=4096,  # it does not come to its end before we have read of step 120
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "time-step" in line and int(line.split("|")[2]) >= 120:
                break
        process.terminate()
        process.communicate()
    again = run_example(broken)
    assert again.returncode == 0, again.stderr
    first, second = (item(data, table="resume_example") for data in (whole, broken))
    wait_until(lambda: state_of(first) == state_of(second) == "finished")
    pd.testing.assert_frame_equal(
        rows(first / "progress.csv"), rows(second / "progress.csv"), check_exact=True
    )
    assert tb_steps(second, "loss/mse") == list(range(1, 301))
    assert agent.alive


@pytest.mark.slow
def test_resume_at_an_older_checkpoint(agent: Any, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    run_code(
        """
        import torch
        open_run(); exp_manager.log_files_gen(); exp_manager.new_saver(10)
        np.random.seed(7)
        for i in range(1, 41):
            step(i)
            exp_manager.add_custom_data('seen', i)
            if i % 10 == 0:
                exp_manager.save_checkpoint({'w': torch.full((3,), float(i))})
                open(f'{exp_manager.results_dir}/{i}-curve.txt', 'w').write('x')
        exp_manager.flush(60)
        """,
        data,
    )
    folder = item(data)
    before = rows(folder / "progress.csv")
    index = "/".join(folder.parts[-4:])
    done = run_code(
        """
        open_run()
        at, content = exp_manager.resume(sys.argv[2], at=20)
        assert at == 20 and float(content['w'][0]) == 20.0, (at, content)
        assert exp_manager.get_custom_data('seen') == list(range(1, 21))
        assert time_step_holder.get_time() == 20
        for i in range(21, 51):
            step(i)
        exp_manager.flush(60)
        """,
        data,
        index,
    )
    assert "\n" not in done.stdout.strip()
    after = rows(folder / "progress.csv")
    assert list(after["time-step"]) == list(range(1, 51))
    pd.testing.assert_frame_equal(after[:40], before, check_exact=True)  # same random numbers again
    assert tb_steps(folder, "x") == list(range(1, 51))
    lines = [json.loads(line)["time-step"] for line in (folder / "progress.json").read_text().splitlines()]
    assert lines == list(range(1, 51))
    abandoned = folder / "abandoned-1"
    assert list(pd.read_csv(abandoned / "progress.csv")["time-step"]) == list(range(21, 41))
    assert sorted(os.listdir(item(data, "checkpoint") / "abandoned-1")) == [
        "checkpoint_30.pt",
        "checkpoint_40.pt",
    ]
    assert sorted(os.listdir(item(data, "results") / "abandoned-1")) == ["30-curve.txt", "40-curve.txt"]
    assert "[RESUME] 20" in (folder / "log.txt").read_text()
    wait_until(lambda: state_of(folder) == "finished")
    assert json.loads((folder / "run.json").read_text())["rows"] == 50


@pytest.mark.slow
def test_agent_killed_while_it_cuts(
    new_agent: Callable[..., Any],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    """The cut is an intent: whenever the agent is killed, the next one completes it."""
    agent = new_agent().start()
    data = tmp_path / "data"
    data.mkdir()
    run_code(
        """
        open_run(run_id='r', resume='allow'); exp_manager.log_files_gen(); np.random.seed(1)
        for i in range(1, 3001):
            step(i)
            if i == 2000:
                exp_manager.save_checkpoint({'i': i})
        exp_manager.flush(60)
        exp_manager.run.outbox.close('failed', 'on purpose')
        import os; os._exit(1)
        """,
        data,
        check=False,
    )
    folder = item(data)
    before = rows(folder / "progress.csv")
    wait_until(lambda: state_of(folder) == "failed" and not stream_names(agent.places.spool))
    agent.kill()
    (agent.places.state / "stopped").touch()  # no autostart: the new stream waits in the spool
    run_code(
        """
        open_run(run_id='r', resume='allow'); exp_manager.log_files_gen()
        assert exp_manager.resumed_from == 2000
        for i in range(2001, 3001):
            step(i)
        import os; os._exit(0)
        """,
        data,
    )
    for delay in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "rla_agent.daemon", "--background"], stdin=subprocess.DEVNULL
        )
        wait_until(lambda: agent.places.control_socket.exists() and (folder / "abandoned-1").exists(), 20)
        if delay:
            wait_until(lambda: (folder / "progress.csv").stat().st_size > 0, 20)
        process.kill()
        process.wait()
    agent.start()
    wait_until(lambda: state_of(folder) == "killed")
    pd.testing.assert_frame_equal(rows(folder / "progress.csv"), before, check_exact=True)
    assert tb_steps(folder, "x") == list(range(1, 3001))


@pytest.mark.slow
def test_fork_goes_on_in_the_copied_files(agent: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    run_code(
        """
        import torch
        open_run(); exp_manager.log_files_gen(); exp_manager.new_saver(2)
        for i in range(1, 11): step(i)
        exp_manager.save_checkpoint({'w': torch.ones(2)}, related_variable={'lr_now': 0.5})
        exp_manager.flush(60)
        """,
        data,
    )
    source = item(data)
    date = "/".join(source.parts[-4:])[:26]
    out = run_code(
        """
        from rla_client import ExperimentLoader, fork_log_file_fn
        open_run()
        exp_manager.set_hyper_param(lr=9, other=3)
        exp_manager.log_files_gen()
        logger.record_tabular('early', 1); logger.dump_tabular()
        loader = ExperimentLoader(); loader.config('t', sys.argv[2], root)
        loader.fork_log_files()
        assert exp_manager.get_custom_data('lr_now') == 0.5
        at, content, values = loader.load_from_record_date(variable_list=['lr_now'])
        assert at == 10 and values == {'lr_now': 0.5}, (at, values)
        merged = loader.import_hyper_parameters(hp_to_overwrite=['lr'], sync_timestep=True)
        assert merged.lr == 9 and merged.deep == {'a': 1, 'b': 2} and merged.other == 3, merged
        assert time_step_holder.get_time() == 10
        for i in range(11, 21): step(i)
        exp_manager.flush(60)
        print(exp_manager.log_dir)
        """,
        data,
        date,
    )
    forked = Path(out.stdout.strip().splitlines()[-1])
    table = pd.read_csv(forked / "progress.csv")
    assert list(table["time-step"]) == list(range(1, 21))
    assert list(pd.read_csv(forked / "before-fork" / "progress.csv")["early"]) == [1.0]
    assert {"environment.json", "run.json"} <= {entry.name for entry in forked.iterdir()}, "its own stay"
    assert set(range(1, 21)) <= set(tb_steps(forked, "x"))
    assert len(pd.read_csv(source / "progress.csv")) == 10


@pytest.mark.further
@pytest.mark.slow
def test_a_database_that_was_moved_is_loaded_forked_and_resumed(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    old, data = tmp_path / "old", tmp_path / "elsewhere" / "data"
    old.mkdir()
    data.parent.mkdir()
    run_code(
        """
        import torch
        open_run(); exp_manager.log_files_gen(); exp_manager.new_saver(2)
        for i in range(1, 11):
            step(i)
            if i % 5 == 0:
                exp_manager.save_checkpoint({'w': torch.full((2,), float(i))}, {'mean': np.full(2, i)})
        exp_manager.flush(60)
        """,
        old,
    )
    source = item(old)
    wait_until(lambda: state_of(source) == "finished" and not stream_names(agent.places.spool))
    old.rename(data)
    date = "/".join(source.parts[-4:])[:26]
    run_code(
        """
        from rla_client import fork_log_file_fn, update_hyper_parameters_fn, ExperimentLoader
        from rla_client.manager import Tester
        loaded = Tester.load_tester(sys.argv[2], 't', root)
        assert loaded.load_checkpoint()[0] == 10 and loaded.checkpoint_dir.startswith(root)
        assert loaded.get_custom_data('mean').tolist() == [10, 10]
        open_run(); exp_manager.log_files_gen()
        merged = update_hyper_parameters_fn('t', sys.argv[2], root)
        fork_log_file_fn(root, 't', sys.argv[2], sync_timestep=True)
        assert merged.deep == {'a': 1, 'b': 2} and logger.get_time() == 10
        step(11)
        assert exp_manager.load_checkpoint()[0] == 10
        assert exp_manager.resume(sys.argv[2], at=5)[0] == 5
        assert exp_manager.get_custom_data('mean').tolist() == [5, 5]
        for i in range(6, 13): step(i)
        exp_manager.flush(60)
        """,
        data,
        date,
    )
    tables = {path.parent.name[:15]: pd.read_csv(path) for path in data.glob("log/t/*/*/*/*/progress.csv")}
    assert list(tables.pop(date[-15:])["time-step"]) == list(range(1, 13))
    (forked,) = tables.values()
    assert list(forked["time-step"]) == list(range(1, 12))


@pytest.mark.slow
def test_a_living_run_is_not_resumed(agent: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    code = """
        open_run(run_id='r', resume='allow'); exp_manager.log_files_gen(); step(1); exp_manager.flush(60)
        print('up', flush=True); sys.stdin.read()
    """
    first = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(code), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    for line in first.stdout:
        if line == "up\n":
            break
    second = run_code("open_run(run_id='r', resume='must'); exp_manager.log_files_gen()", data, check=False)
    first.communicate("")
    assert second.returncode != 0
    assert "still being written" in second.stderr


SECOND = """
from rla_client.run.resume import earlier_streams
earlier_streams.ENDS_S = float(sys.argv[2])
open_run(run_id='r', resume='allow'); exp_manager.log_files_gen()
print('resumed from', exp_manager.resumed_from, flush=True)
step(9); exp_manager.flush(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ends", [False, True])
def test_a_living_run_never_ends_the_training_that_may_resume_it(
    agent: Any, tmp_path: Path, *, ends: bool, wait_until: Callable[..., Any]
) -> None:
    """`allow` waits for its end, and goes on with it then; where it stays, a new run begins."""
    data = tmp_path / "data"
    data.mkdir()
    code = """
        open_run(run_id='r', resume='allow'); exp_manager.log_files_gen(); exp_manager.new_saver(); step(1)
        exp_manager.save_checkpoint({'at': 1}); exp_manager.flush(60)
        print('up', flush=True); sys.stdin.read()
        import os; os._exit(1)
    """
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), str(data)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert any(line == "up\n" for line in first.stdout)
    second = subprocess.Popen(
        [sys.executable, "-c", HEAD + SECOND, str(data), "60" if ends else "0.2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert second.stdout is not None
    if ends:
        assert any("waiting up to 60 s" in line for line in second.stdout)
        first.communicate("")
    out = second.communicate(timeout=120)[0]
    first.communicate("") if not ends else None
    assert second.returncode == 0, out
    assert ("resumed from 1" in out) is ends
    assert ("still being written by a living process" in out) is not ends
    assert ("A new run begins" in out) is not ends
    wait_until(lambda: len(list(data.glob("log/t/*/*/*/*/run.json"))) == (1 if ends else 2))


def test_must_resume_without_a_run_says_so(places: Places, tmp_path: Path) -> None:
    done = run_code(
        "open_run(run_id='none', resume='must'); exp_manager.log_files_gen()", tmp_path, check=False
    )
    assert "has no run 'none' to continue" in done.stderr
    assert not list(tmp_path.glob("log/t/*/*/*/*"))


GOING_ON = """
    import os, signal
    last, ending = int(sys.argv[2]), sys.argv[3]
    open_run(run_id='one', resume='allow')
    exp_manager.log_files_gen()
    exp_manager.new_saver()
    start = exp_manager.load_checkpoint()[0] if exp_manager.resumed_from is not None else -1
    for i in range(start + 1, last):
        step(i)
        if i % 10 == 9:
            exp_manager.save_checkpoint({'w': np.zeros(3)})
    print('from', start, flush=True)
    if ending == 'kill':
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == 'exec':
        sys.argv[2:] = ['60', '']
        os.execv(sys.executable, [*sys.orig_argv[:3], *sys.argv[1:]])
    exp_manager.close()
"""


@pytest.mark.slow
def test_the_only_checkpoint_may_be_of_step_0(agent: Any, tmp_path: Path) -> None:
    """A script that asked `if resumed_from:` began anew there, and logged step 0 twice."""
    assert agent.alive
    code = GOING_ON.replace("i % 10 == 9", "i == 0")
    run_code(code, tmp_path, 5, "kill", check=False)
    done = run_code(code, tmp_path, 8, "")
    assert "from 0" in done.stdout, done.stdout
    assert list(rows(item(tmp_path) / "progress.csv")["time-step"]) == [*range(8)]


@pytest.mark.slow
def test_without_a_checkpoint_there_is_nothing_to_load(agent: Any, tmp_path: Path) -> None:
    assert agent.alive
    run_code(GOING_ON, tmp_path, 5, "kill", check=False)
    done = run_code(GOING_ON, tmp_path, 8, "")
    assert "from -1" in done.stdout, done.stdout
    assert list(rows(item(tmp_path) / "progress.csv")["time-step"]) == [*range(8)]


@pytest.mark.further
@pytest.mark.slow
def test_a_program_that_executes_itself_anew_goes_on(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    assert agent.alive
    done = run_code(GOING_ON, tmp_path, 35, "exec")
    assert done.stdout.count("from ") == 2, done.stdout
    assert "from 29" in done.stdout
    wait_until(lambda: state_of(item(tmp_path)) == "finished")
    assert list(rows(item(tmp_path) / "progress.csv")["time-step"]) == [*range(60)]


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    assert agent.alive
    run_code(GOING_ON, tmp_path, 35, "kill", check=False)
    wait_until(lambda: state_of(item(tmp_path)) == "killed")
    wait_until((item(tmp_path, "checkpoint") / "checkpoint_29.pt").exists)
    os.truncate(item(tmp_path, "checkpoint") / "checkpoint_29.pt", 100)
    done = run_code(GOING_ON, tmp_path, 60, "")
    assert "checkpoint_29.pt is damaged" in done.stdout
    assert "from 19" in done.stdout
    wait_until(lambda: state_of(item(tmp_path)) == "finished")
    assert list(rows(item(tmp_path) / "progress.csv")["time-step"]) == [*range(60)]


STAGES = """
    import os, signal
    open_run(run_id='stages', resume='allow')
    exp_manager.log_files_gen()
    exp_manager.new_saver()
    done = exp_manager.load_checkpoint()[1]['n'] if exp_manager.resumed_from is not None else 0
    print('at', done, 'clock', time_step_holder.get_time(), flush=True)
    for n in range(done + 1, 121):
        stage, i = divmod(n - 1, 40)
        step(i + 1)
        if i in (4, 36):
            logger.flush(20)
            with open(os.path.join(exp_manager.results_dir, f'{i + 1}-stage{stage}.png'), 'wb') as file:
                file.write(b'x')
        if (i + 1) % 10 == 0:
            exp_manager.save_checkpoint({'n': n})
        if n == 78 and not done:
            logger.flush(20)
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_run_whose_time_steps_begin_again_continues_at_the_checkpoint_that_was_saved_last(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Stages of a curriculum; killed at step 38 of the second of three."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for data in (whole, broken):
        (data / "checkpoint").mkdir(parents=True)
    unbroken = STAGES.replace("n == 78", "n == 999")
    run_code(unbroken, whole)
    run_code(STAGES, broken, check=False)
    wait_until(lambda: state_of(item(broken)) == "killed")
    saved = item(broken, "checkpoint")
    wait_until(lambda: len(list(saved.glob("*.pt"))) == 4)
    done = run_code(STAGES, broken)
    assert "at 70 clock 30" in done.stdout
    wait_until(lambda: state_of(item(broken)) == state_of(item(whole)) == "finished")
    first, second = (item(data) / "progress.csv" for data in (whole, broken))
    pd.testing.assert_frame_equal(rows(first)[["time-step", "x3"]], rows(second)[["time-step", "x3"]])
    (lost,) = item(broken).glob("abandoned-1/progress.csv")
    assert list(rows(lost)["time-step"]) == [*range(31, 39)]
    assert not list(saved.glob("abandoned-1/*.pt")), "checkpoint_40.pt of the first stage is older"
    results = item(broken, "results")
    assert sorted(path.name for path in results.glob("*.png")) == sorted(
        f"{step}-stage{stage}.png" for step in (5, 37) for stage in (0, 1, 2)
    )
    assert [path.name for path in results.glob("abandoned-1/*")] == ["37-stage1.png"]
    assert agent.alive


@pytest.mark.further
@pytest.mark.slow
def test_a_run_that_waits_in_the_spool_is_found_where_its_database_was_moved(
    new_agent: Callable[..., Any], places: Places, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    stop_autostart(places)
    run_code(GOING_ON, tmp_path / "data", 35, "kill", check=False)
    os.rename(tmp_path / "data", tmp_path / "moved")
    os.symlink(tmp_path / "moved", tmp_path / "data")
    new_agent().start()
    done = run_code(GOING_ON, tmp_path / "data", 60, "")
    assert "from 29" in done.stdout
    wait_until(lambda: state_of(item(tmp_path / "moved")) == "finished")
    assert list(rows(item(tmp_path / "moved") / "progress.csv")["time-step"]) == [*range(60)]


@pytest.mark.slow
def test_a_job_that_is_started_again_after_rla_agent_stop_does_not_begin_anew(
    places: Places, tmp_path: Path
) -> None:
    """All of the first one is in the spool; each start began at 0, with a warning."""
    stop_autostart(places)
    run_code(GOING_ON, tmp_path / "data", 35, "kill", check=False)
    assert stream_names(places.spool)
    done = run_code(GOING_ON, tmp_path / "data", 60, "")
    assert "from 29" in done.stdout
    assert not places.control_socket.exists(), "no agent was started"
    subprocess.run([sys.executable, "-m", "rla_agent", "drain"], check=True, timeout=60)
    assert list(rows(item(tmp_path / "data") / "progress.csv")["time-step"]) == [*range(60)]


OBJECTS = """
    import os, signal, threading, torch
    from rla_client import ExperimentLoader
    from rla_client.contract.errors import UntrustedCheckpointError
    open_run(run_id='objects', resume='allow')
    exp_manager.log_files_gen()
    exp_manager.new_saver()
    net = torch.nn.Linear(2, 2)
    if exp_manager.resumed_from is not None:
        optimizer = exp_manager.get_custom_data('optimizer')
        print(type(optimizer).__name__, optimizer.param_groups[0]['lr'], exp_manager.get_custom_data('n'))
        loader = ExperimentLoader()
        loader.config('t', exp_manager.record_date.strftime('%Y/%m/%d/%H-%M-%S-%f'), root)
        loaded = loader.load()
        try:
            loaded.get_custom_data('optimizer')
        except UntrustedCheckpointError as error:
            print('refused:', error)
        trusted = loaded.get_custom_data('optimizer', trust=True)
        print(trusted.param_groups[0]['lr'], loaded.get_custom_data('n'))
        exp_manager.close()
        raise SystemExit
    optimizer = torch.optim.Adam(net.parameters(), lr=0.25)
    step(1)
    exp_manager.save_checkpoint(
        net.state_dict(), related_variable={'optimizer': optimizer, 'lock': threading.Lock(), 'n': 3}
    )
    exp_manager.add_custom_data('locks', threading.Lock())
    exp_manager.save_checkpoint(net.state_dict())
    print(flush=True)
    logger.flush(20)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.further
@pytest.mark.slow
def test_objects_beside_a_checkpoint_come_back_in_the_run_that_kept_them(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Any picklable object; one that is not costs a warning, and never the checkpoint."""
    assert agent.alive
    done = run_code(OBJECTS, tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: state_of(item(tmp_path)) == "killed")
    warned = (item(tmp_path) / "warn.txt").read_text()
    assert warned.count("'lock' is a lock, which cannot be pickled") == 1
    assert warned.count("'locks/0' is a lock, which cannot be pickled") == 1
    done = run_code(OBJECTS, tmp_path)
    assert "Adam 0.25 3" in done.stdout
    assert "refused: custom data 'optimizer' holds an object that was not loaded" in done.stdout
    assert "\n0.25 3\n" in done.stdout
