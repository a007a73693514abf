"""What `rla resume` and `rla rerun` start: one process, the recorded parameters, variables and modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import launchers

from rla_client.contract.errors import LaunchError
from rla_client.launcher import relaunch
from rla_client.launcher.pending_streams import await_end

BASE = Path("data", "local", "experiment")
HEAD = (
    "import os, sys, time\n"
    "from rla_client.launcher import logger, tabular, wrap_experiment\n"
    "def row(**values):\n"
    "    for key, value in values.items():\n"
    "        tabular.record(key, value)\n"
    "    logger.log(tabular)\n"
    "    logger.dump_all()\n"
)


@pytest.fixture(autouse=True)
def own_folder(agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "0")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text)
    return path


def rows(folder: Path) -> list[dict[str, str]]:
    await_end(folder)
    return launchers.rows(folder)


POOL = """
import multiprocessing
@wrap_experiment(archive_launch_repo=False, name_parameters="passed")
def sweep(ctxt, seed=1):
    with open("made", "a") as file:
        print(seed, file=file)
    for number in range(30):
        row(number=number, seed=seed, pid=os.getpid())
def meet(barrier):
    global together
    together = barrier
def call(seed):
    together.wait(60)  # each process makes one of the calls, all at the same time
    sweep(seed=seed)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(3, meet, (context.Barrier(3),)) as pool:
        pool.map(call, [1, 2, 3], 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_process_of_a_pool_goes_on(tmp_path: Path, method: str) -> None:
    path = write(tmp_path / "pool.py", POOL)
    launchers.run(path, method)
    folder = tmp_path / BASE / "sweep_seed=2"
    assert relaunch.resume(folder) == 0
    assert sorted((tmp_path / "made").read_text().split()) == ["1", "2", "2", "3"]
    found = rows(folder)
    assert [row["number"] for row in found] == [str(number) for number in range(30)]
    assert {row["seed"] for row in found} == {"2"}
    assert len({row["pid"] for row in found}) == 1
    assert sorted(one.name for one in (tmp_path / BASE).iterdir()) == [f"sweep_seed={n}" for n in (1, 2, 3)]


SWEEP_THEN_POOL = """
import multiprocessing
@wrap_experiment(archive_launch_repo=False, name_parameters="passed")
def sweep(ctxt, seed=1):
    row(seed=seed, told="RLA_RELAUNCH" in os.environ)
def call(seed): sweep(seed=seed)
if __name__ == "__main__":
    sweep(seed=0)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(call, [1, 2], 1)
"""


@pytest.mark.slow
def test_processes_started_after_the_run_make_none(tmp_path: Path) -> None:
    launchers.run(write(tmp_path / "then.py", SWEEP_THEN_POOL))
    assert relaunch.resume(tmp_path / BASE / "sweep_seed=0") == 0
    assert sorted(one.name for one in (tmp_path / BASE).iterdir()) == [f"sweep_seed={n}" for n in (0, 1, 2)]
    assert {row["told"] for row in rows(tmp_path / BASE / "sweep_seed=0")} == {"False"}, "the run is its own"


@pytest.mark.slow
def test_a_launcher_under_rla_agent_run(tmp_path: Path) -> None:
    path = write(
        tmp_path / "l.py", "@wrap_experiment(archive_launch_repo=False)\ndef one(ctxt): row(a=1)\none()\n"
    )
    command = [sys.executable, "-m", "rla_agent", "run", "--no-console", "--", sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=launchers.DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["a"] for row in rows(tmp_path / BASE / "one")] == ["1"]


HOLDING = """
@wrap_experiment(archive_launch_repo=False, use_existing_dir=True, log_dir="same")
def held(ctxt, who="", ask=False):
    if os.fork() == 0:  # a worker that outlives a killed training
        time.sleep(600)
        os._exit(0)
    row(who=who)
    print("PID", os.getpid(), flush=True)
    sys.stdin.readline()
held(who=sys.argv[1])
"""


@pytest.mark.slow
def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "held.py", HOLDING)
    first = launchers.start(path, "one", stdin=subprocess.PIPE, start_new_session=True)
    processes = [first]
    try:
        while not launchers.printed(first).readline().startswith("PID"):
            pass
        record = (tmp_path / "same" / "metadata.json").read_bytes()
        second = launchers.start(path, "two")
        output, _ = second.communicate(timeout=launchers.DEADLINE_S)
        assert second.returncode == 1
        assert f"process {first.pid} is writing into {tmp_path / 'same'}" in output
        assert (tmp_path / "same" / "metadata.json").read_bytes() == record  # nothing was touched
        first.kill()
        first.wait(60)
        third = launchers.start(path, "three", stdin=subprocess.PIPE, start_new_session=True)
        processes.append(third)
        assert third.stdin is not None
        third.stdin.close()
        assert third.wait(60) == 0
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait(60)
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
    assert [row["who"] for row in rows(tmp_path / "same")] == ["one", "three"]


OBJECTS = """
import functools
class Conf:
    size = 3
    def __repr__(self): return f"<Conf of {time.time()}>"
class Kind: pass
def double(x): return 2 * x
@wrap_experiment(archive_launch_repo=False)
def objects(ctxt, fn=double, deep={"act": double, "lr": 0.5}, many=[double, 3], stamp=None,
            part=functools.partial(double, 4), cls=Kind, conf=Conf(), lam=lambda x: x):
    row(fn=fn(1), deep=deep["act"](2) + deep["lr"], many=many[0](many[1]), part=part(),
        cls=cls().__class__ is Kind, conf=conf.size, lam=lam(8), stamp=stamp)
objects(stamp=time.time())
"""


@pytest.mark.slow
def test_functions_and_objects_among_the_parameters_stay_what_they_are(tmp_path: Path) -> None:
    launchers.run(write(tmp_path / "objects.py", OBJECTS))
    folder = tmp_path / BASE / "objects"
    before = rows(folder)
    assert relaunch.resume(folder) == 0
    assert rows(folder) == before  # the time of the first start is recorded


NESTED = """
@wrap_experiment(archive_launch_repo=False)
def inner(ctxt, v=1): row(v=v)
@wrap_experiment(archive_launch_repo=False)
def outer(ctxt):
    inner(v=2)
    row(y=1)
if "--not" not in sys.argv:
    outer()
    inner(v=3)
"""


@pytest.mark.slow
def test_a_call_that_is_not_reached_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "nested.py", NESTED)
    launchers.run(path)
    with pytest.raises(LaunchError, match=rf"inside of the experiment in {tmp_path / BASE / 'outer'}"):
        relaunch.resume(tmp_path / BASE / "inner")
    assert relaunch.resume(tmp_path / BASE / "inner_1") == 0
    assert [row["v"] for row in rows(tmp_path / BASE / "inner_1")] == ["3"]
    path.write_text(path.read_text().replace('"--not" not in sys.argv', "False"))
    with pytest.raises(LaunchError, match="call 0 of outer was not reached"):
        relaunch.resume(tmp_path / BASE / "outer")
    assert [row["y"] for row in rows(tmp_path / BASE / "outer")] == ["1"]


VARIED = """
import helper
@wrap_experiment
def varied(ctxt): row(scale=helper.SCALE, hash=hash("abc"))
varied()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["PYTHONPATH", "sys.path", "nowhere"])
def test_a_rerun_has_the_archived_modules_and_the_recorded_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    text = VARIED
    if how == "sys.path":
        library = "os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'lib')"
        text = f"sys.path.insert(0, {library})\n" + VARIED
    elif how == "nowhere":  # as the finder of an editable install does
        spec = "importlib.util.spec_from_file_location('helper', os.environ['HELPER'])"
        text = (
            "import importlib.util\nif 'HELPER' in os.environ:\n"
            f"    spec = {spec}\n    sys.modules['helper'] = importlib.util.module_from_spec(spec)\n"
            "    spec.loader.exec_module(sys.modules['helper'])\n" + VARIED
        )
    path = write(tmp_path / "scripts" / "varied.py", text)
    helper = tmp_path / "lib" / "helper.py"
    helper.parent.mkdir()
    helper.write_text("SCALE = 1\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("state/\n")
    variable = {"PYTHONPATH": str(helper.parent)} if how == "PYTHONPATH" else {"HELPER": str(helper)}
    environment = {**os.environ, **variable, "PYTHONHASHSEED": "3"}
    subprocess.run([sys.executable, str(path)], check=True, env=environment, timeout=launchers.DEADLINE_S)
    helper.write_text("SCALE = 5\n")
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    if how == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(helper.parent))
    compared = relaunch.rerun(tmp_path / BASE / "varied", tmp_path / "again")
    assert compared.equal, compared
    assert compared.rows == (1, 1)


MOVING = """
@wrap_experiment(archive_launch_repo=False)
def moving(ctxt): row(folder=os.path.basename(os.getcwd()))
moving()
"""


@pytest.mark.slow
def test_a_launcher_that_changes_its_folder_is_started_where_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "scripts" / "moving.py", MOVING)
    early = "import os\nos.makedirs('work', exist_ok=True)\nos.chdir('work')\n"
    path.write_text(early + path.read_text())
    subprocess.run([sys.executable, "scripts/moving.py"], check=True, timeout=launchers.DEADLINE_S)
    folder = tmp_path / "work" / BASE / "moving"
    assert json.loads((folder / "metadata.json").read_text())["launch"]["folder"] == str(tmp_path)
    assert relaunch.resume(folder) == 0
    assert [row["folder"] for row in rows(folder)] == ["work"]


ITEM = """
@wrap_experiment(archive_launch_repo=False, task_table_name="t", rla_config={"LOG_USED": ["csv"]},
                 use_existing_dir=True)
def item(ctxt):
    row(a=1)
    print("DIR " + ctxt.log_dir, flush=True)
item()
"""


@pytest.mark.slow
def test_an_item_goes_on_with_the_outputs_that_it_had(tmp_path: Path) -> None:
    output = launchers.run(write(tmp_path / "item.py", ITEM))
    assert "use_existing_dir has no meaning in a database" in output
    (folder,) = (Path(line[4:]) for line in output.splitlines() if line.startswith("DIR "))
    await_end(folder)
    assert not list(folder.rglob("*.tfevents.*"))
    assert relaunch.resume(folder) == 0
    assert [row["a"] for row in rows(folder)] == ["1"]
    assert not list(folder.rglob("*.tfevents.*"))
    assert "password" not in (folder / "metadata.json").read_text().lower()


@pytest.mark.slow
def test_the_configuration_above_the_launcher_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    path = write(
        project / "scripts" / "deep" / "l.py",
        "@wrap_experiment(archive_launch_repo=False)\ndef deep(ctxt): print('DIR ' + ctxt.log_dir)\ndeep()\n",
    )
    (project / "rla_config.yaml").write_text("LOG_USED: [csv]\n")

    def folder() -> Path:
        output = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            check=True,
            text=True,
            timeout=launchers.DEADLINE_S,
        ).stdout
        return Path(next(line[4:] for line in output.splitlines() if line.startswith("DIR ")))

    monkeypatch.chdir(project)
    assert folder() == project / BASE / "deep"  # not in a repository
    (project / ".git").mkdir()
    assert folder().is_relative_to(project / "data" / "log" / "experiment" / "deep")
    (tmp_path / "rla_config.yaml").write_text("LOG_USED: [csv]\n")
    (project / "rla_config.yaml").unlink()
    assert folder() == project / BASE / "deep_1"  # that one is not of this project
    (project / ".git").rmdir()
    (path.parent / ".git").mkdir()
    monkeypatch.chdir(path.parent)
    assert folder() == path.parent / BASE / "deep"  # nor above a repository


@pytest.mark.slow
def test_no_configuration_above_the_launcher_without_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "@wrap_experiment(archive_launch_repo=False)\ndef deep(ctxt): pass\ndeep()\n"
    path = write(tmp_path / "home" / "scripts" / "l.py", text)
    (tmp_path / "home" / "rla_config.yaml").write_text("LOG_USED: [csv]\n")
    monkeypatch.chdir(path.parent)
    launchers.run(path)
    assert (path.parent / BASE / "deep").is_dir()
    assert not (tmp_path / "home" / "data").exists()


THREADS = """
from concurrent.futures import ThreadPoolExecutor
import threading
inside, done = threading.Event(), threading.Event()
@wrap_experiment(archive_launch_repo=False)
def one(ctxt):
    row(one=1)
    inside.set()
    assert done.wait(30)
@wrap_experiment(archive_launch_repo=False)
def two(ctxt): row(two=2)
with ThreadPoolExecutor(2) as pool:
    first = pool.submit(one)
    inside.wait(30)
    try:
        two()
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    done.set()
    first.result()
two()
"""


@pytest.mark.slow
def test_a_second_thread_is_refused_while_the_first_is_inside(tmp_path: Path) -> None:
    output = launchers.run(write(tmp_path / "threads.py", THREADS))
    assert "LaunchError two cannot run now: another thread" in output
    assert rows(tmp_path / BASE / "one") == [{"one": "1", "time-step": "0"}]
    assert rows(tmp_path / BASE / "two") == [{"two": "2", "time-step": "0"}]
