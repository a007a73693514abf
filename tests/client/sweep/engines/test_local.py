"""Runs on this machine: how many at a time, on which GPU, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import TIME_FACTOR, lives, wait_until

from rla_client.contract.agent.places import Places
from rla_client.sweep.engines import local
from rla_client.sweep.engines.attempt_files import group_of, is_held
from rla_client.sweep.engines.attempt_process import NOT_STARTED
from rla_client.sweep.engines.base import AttemptEnded, Work
from rla_client.sweep.engines.local import LocalEngine
from rla_client.sweep.journal import SweepError
from rla_client.sweep.spec import Resources

ENDED_S = 60 * TIME_FACTOR
GPU_SCRIPT = """echo begin $CUDA_VISIBLE_DEVICES >>log
until [ -e gate$0 ]; do sleep 0.01; done
echo end $CUDA_VISIBLE_DEVICES >>log"""


class Engine(LocalEngine):
    """One with works by number, all in one folder."""

    def __init__(self, folder: Path, resources: Resources) -> None:
        super().__init__(resources)
        self.folder = folder
        self.told: list[AttemptEnded] = []

    def work(self, number: int, *command: str, **environment: str) -> Work:
        files = [str(self.folder / f"{number}.{kind}") for kind in ("txt", "exit", "lock")]
        return Work(number, command, environment, str(self.folder), *files)

    def begin(self, number: int, *command: str, **environment: str) -> Work:
        assert self.room() > 0
        work = self.work(number, *command, **environment)
        assert self.start([work]) == [""]
        return work

    def shell(self, number: int, script: str) -> Work:
        return self.begin(number, "sh", "-c", script, str(number))

    def next(self) -> AttemptEnded:
        """The next end; several may be told at a time."""
        self.told += [] if self.told else self.ended(ENDED_S)
        return self.told.pop(0)

    def path(self, name: str) -> Path:
        return self.folder / name

    def wait_for(self, name: str, text: str = "") -> str:
        wait_until(
            lambda: self.path(name).exists() and text in self.path(name).read_text(), 30, f"{text} in {name}"
        )
        return self.path(name).read_text()


Make = Callable[..., Engine]


@pytest.fixture
def make(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """`make(**resources)`: an engine; what it started is killed at the end."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = tmp_path / "rüns here"
    folder.mkdir()
    made: list[Engine] = []

    def one(**resources: float) -> Engine:
        made.append(Engine(folder, Resources(**resources)))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for engine in made:
        engine.stop([*engine._started, *engine._adopted], kill=True)
        while engine._started or engine._adopted:
            assert engine.ended(ENDED_S)
        engine.close()


def test_exit_status_and_output(make: Make) -> None:
    engine = make(parallel=3)
    for number, script in enumerate(["echo one; echo two >&2", "exit 3", "kill -9 $$"]):
        engine.shell(number, script)
    found: list[AttemptEnded] = []
    while len(found) < 3:
        found += engine.ended(ENDED_S)
    assert sorted((one.number, one.status) for one in found) == [(0, 0), (1, 3), (2, 137)]
    assert engine.path("0.txt").read_text() == "one\ntwo\n"
    assert [engine.path(f"{number}.exit").read_text() for number in range(3)] == ["0\n", "3\n", "137\n"]
    assert engine.room() == 3


def test_output_of_further_attempts_is_added(make: Make) -> None:
    engine = make(parallel=1)
    for attempt in range(2):
        engine.shell(1, f"echo {attempt}")
        assert engine.next().status == 0
    assert engine.path("1.txt").read_text() == "0\n1\n"


def test_a_run_has_its_environment_and_no_input(make: Make) -> None:
    engine = make(parallel=1)
    engine.begin(1, "sh", "-c", 'cat; echo "$A"; pwd; ls /proc/$$/fd', A="é b")
    assert engine.next().status == 0
    lines = engine.path("1.txt").read_text().splitlines()
    assert lines[:2] == ["é b", str(engine.folder)]


def test_a_run_has_what_a_shell_cannot_name(make: Make) -> None:
    """`module` of a cluster is a function that bash exports."""
    engine = make(parallel=1)
    show = "import os, sys; print(os.environ['BASH_FUNC_module%%'], sys.argv[1])"
    engine.begin(1, sys.executable, "-c", show, "a=b", **{"BASH_FUNC_module%%": "() {  echo 'x'\n}"})
    assert engine.next().status == 0
    assert engine.path("1.txt").read_text() == "() {  echo 'x'\n} a=b\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("no-such-program",), "there is no such program"),
        (("exit", "3"), "there is no such program"),
        (("true", "a\0b"), "embedded null byte"),
        (("true", "\ud800"), "surrogates not allowed"),
        (("true", "x" * (4 << 20)), "Argument list too long"),
    ],
)
def test_what_cannot_be_started(make: Make, command: tuple[str, ...], told: str) -> None:
    engine = make(parallel=1)
    engine.begin(1, *command)
    ended = engine.next()
    assert (ended.number, ended.status) == (1, NOT_STARTED)
    assert told in ended.reason
    assert engine.room() == 1
    assert not list(engine.folder.glob("1.lock")) or group_of(str(engine.path("1.lock"))) is None


def test_what_is_found_and_is_no_program(make: Make) -> None:
    engine = make(parallel=1)
    engine.path("plain").write_text("no program")
    for command in ("./plain", "./none"):
        engine.begin(1, command)
        ended = engine.next()
        assert ended.status == NOT_STARTED
        assert ended.reason.startswith("cannot be started: ")
        assert command in ended.reason


def test_the_folder_is_gone(make: Make) -> None:
    engine = make(parallel=1)
    work = engine.work(1, "true")
    engine.start([Work(1, ("true",), {}, str(engine.folder / "none"), work.output, work.exit, work.lock)])
    assert "No such file" in engine.next().reason


def test_room(make: Make) -> None:
    cores = len(os.sched_getaffinity(0))
    assert make().room() == cores
    assert make(cpus=cores).room() == 1
    assert make(cpus=0.5).room() == cores * 2
    assert make(parallel=50).room() == 50
    memory = psutil.virtual_memory().total
    assert make(memory=memory // 4, parallel=50).room() in range(5)
    with pytest.raises(SweepError, match=f"a run takes {cores + 1} cores, and this machine has {cores}"):
        make(cpus=cores + 1)
    with pytest.raises(SweepError, match=r"a run takes .* MiB, and this machine has"):
        make(memory=memory * 2)


def test_parallel_is_kept(make: Make) -> None:
    engine = make(parallel=2)
    for number in range(2):
        engine.shell(number, "until [ -e gate ]; do sleep 0.01; done")
    assert engine.room() == 0
    assert engine.ended(0.0) == []
    engine.path("gate").touch()
    engine.next()
    assert engine.room() >= 1


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, make: Make) -> Callable[[str], None]:
    return lambda names: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)


def used(engine: Engine) -> dict[str, int]:
    """Runs on each GPU now, as they tell it."""
    found: dict[str, int] = {}
    path = engine.path("log")
    for line in path.read_text().splitlines() if path.exists() else ():
        what, names = line.split()
        for name in names.split(","):
            found[name] = found.get(name, 0) + (1 if what == "begin" else -1)
    return found


def fill(engine: Engine, first: int = 0) -> list[int]:
    """Start as many as it takes."""
    numbers: list[int] = []
    while engine.room():
        numbers.append(first + len(numbers))
        engine.shell(numbers[-1], GPU_SCRIPT)
    wait_until(lambda: all(engine.path(f"{n}.lock").read_text() for n in numbers), 30)
    return numbers


def test_a_gpu_each_also_of_two_sweeps(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("0, GPU-1/x,0,-1,")
    one, other = make(gpus=1, parallel=5), make(gpus=1, parallel=5)
    one.shell(1, GPU_SCRIPT)
    other.shell(2, GPU_SCRIPT)
    assert (one.room(), other.room()) == (0, 0)
    one.wait_for("log", "begin 0")
    one.wait_for("log", "begin GPU-1/x")
    one.path("gate1").touch()
    one.next()
    assert other.room() == 1
    other.close()
    assert one.room() == 1
    one.close()
    one.path("gate2").touch()
    other.next()
    assert used(one) == {"0": 0, "GPU-1/x": 0}


def test_gpus_that_no_run_was_for_are_given_back(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("0,1,2")
    one, other = make(gpus=1, parallel=3), make(gpus=1, parallel=3)
    assert one.room() == 3
    assert other.room() == 0
    one.shell(1, GPU_SCRIPT)
    assert other.room() == 2


def test_halves_are_spread(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("0,1")
    engine, whole = make(gpus=0.5, parallel=9), make(gpus=1, parallel=9)
    for number in (1, 2):
        engine.shell(number, GPU_SCRIPT)
    wait_until(lambda: used(engine) == {"0": 1, "1": 1}, 30)
    assert whole.room() == 0
    assert len(fill(engine, 3)) == 2
    wait_until(lambda: used(engine) == {"0": 2, "1": 2}, 30)
    assert engine.room() == 0


def test_several_gpus_of_one_run(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("3,4,5")
    engine, single = make(gpus=2, parallel=9), make(gpus=1, parallel=9)
    engine.shell(1, GPU_SCRIPT)
    engine.wait_for("log", "begin 3,4")
    assert engine.room() == 0
    assert single.room() == 1, "what it could not take whole it did not keep"


def test_a_gpu_stays_taken_when_its_driver_is_gone(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("0")
    engine = make(gpus=1)
    engine.shell(1, GPU_SCRIPT)
    engine.close()
    after = make(gpus=1)
    assert after.room() == 0
    engine.path("gate1").touch()
    engine.next()
    assert after.room() == 1


@pytest.mark.parametrize(("names", "wanted", "there"), [("", 1, 0), ("-1", 1, 0), ("0", 2, 1), ("0,0", 2, 1)])
def test_no_such_gpus(make: Make, gpus: Callable[[str], None], names: str, wanted: int, there: int) -> None:
    gpus(names)
    with pytest.raises(
        SweepError, match=f"a run takes {wanted} GPUs, and this machine has {there}\nhint: CUDA_VISIBLE"
    ):
        make(gpus=wanted)


def test_gpus_that_nvidia_smi_names(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\necho "GPU 0: NVIDIA H100 (UUID: GPU-a)"; echo "  MIG 1g"; echo "GPU 1: NVIDIA H100"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert local._gpu_names() == ["0", "1"]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert local._gpu_names() == []


WAITING = "echo $$ >program.pid; until [ -e gate ]; do sleep 0.01; done; echo through"


def test_a_program_that_is_killed_alone(make: Make) -> None:
    engine = make(parallel=1)
    engine.shell(1, WAITING)
    os.kill(int(engine.wait_for("program.pid", "\n")), signal.SIGKILL)
    assert engine.next().status == 137


def test_a_shell_that_is_killed_leaves_its_program_going(make: Make) -> None:
    engine = make(parallel=2)
    engine.shell(1, WAITING)
    engine.wait_for("program.pid", "\n")
    os.kill(engine._started[1].process.pid, signal.SIGKILL)
    assert engine.ended(0.5) == []
    assert engine.room() == 1
    engine.shell(2, "echo started beside it")
    assert engine.next() == AttemptEnded(2, 0)
    engine.path("gate").touch()
    assert engine.next() == AttemptEnded(1, None), "nothing saw how it ended"
    assert engine.path("1.txt").read_text() == "through\n"


def test_a_driver_that_is_gone_leaves_runs_whose_end_is_kept(make: Make) -> None:
    engine = make(parallel=1)
    engine.shell(1, WAITING)
    engine.wait_for("program.pid", "\n")
    engine.close()
    assert is_held(engine.work(1, "").lock)
    engine.path("gate").touch()
    assert engine.wait_for("1.exit", "\n") == "0\n"


def test_an_old_kernel_without_descriptors_of_processes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_descriptor_of", lambda _: -1)
    engine = make(parallel=1)
    engine.shell(1, "exit 3")
    assert engine.next() == AttemptEnded(1, 3)


def test_a_script_without_its_interpreter(make: Make) -> None:
    engine = make(parallel=1)
    engine.path("plain").write_text("echo $1; exit 4")
    engine.path("plain").chmod(0o755)
    engine.begin(1, "./plain", "a b")
    assert engine.next() == AttemptEnded(1, 4)
    assert engine.path("1.txt").read_text() == "a b\n"


@pytest.mark.parametrize("kill", [False, True])
def test_stop(make: Make, kill: bool) -> None:
    engine = make(parallel=2)
    engine.shell(1, WAITING)
    engine.shell(2, "trap 'echo asked; exit 0' TERM; echo ready >two; while :; do sleep 0.01; done")
    engine.wait_for("two", "ready")
    engine.wait_for("program.pid", "\n")
    engine.stop([1, 2, 99], kill=kill)
    found: dict[int, int | None] = {}
    while len(found) < 2:
        found |= {one.number: one.status for one in engine.ended(ENDED_S)}
    assert found == ({1: 137, 2: 137} if kill else {1: 143, 2: 0})
    assert ("asked" in engine.path("2.txt").read_text()) == (not kill)
    assert engine.path("1.exit").read_text() == ("137\n" if kill else "143\n")


def test_what_a_run_leaves_behind_ends_with_it(make: Make) -> None:
    engine = make(parallel=1)
    engine.shell(1, "sleep 1000 & echo $! >left.pid")
    assert engine.next().status == 0
    left = int(engine.path("left.pid").read_text())
    wait_until(lambda: not lives(left), 30, "end of what was left")
    wait_until(lambda: group_of(str(engine.path("1.lock"))) is None, 30)


def test_a_gpu_is_free_though_a_run_left_something_behind(make: Make, gpus: Callable[[str], None]) -> None:
    gpus("0")
    engine = make(gpus=1)
    engine.shell(1, "sleep 1000 &")
    engine.next()
    wait_until(engine.room, 30)
    engine.close()


def test_what_takes_a_session_of_its_own_goes_on(make: Make) -> None:
    engine = make(parallel=1)
    daemon = (
        "import os, time; os.setsid(); open('daemon.pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(1000)"
    )
    engine.shell(1, f'{sys.executable} -c "{daemon}" & until [ -s daemon.pid ]; do sleep 0.01; done')
    assert engine.next().status == 0
    process = psutil.Process(int(engine.path("daemon.pid").read_text()))
    try:
        assert process.is_running()
        engine.shell(1, "echo again")
        assert engine.next().status == 0, "it holds the lock of the former attempt"
    finally:
        process.kill()


def test_adopted(make: Make) -> None:
    first, second = make(parallel=1), make(parallel=1)
    work = first.shell(1, WAITING)
    first.wait_for("program.pid", "\n")
    assert second.adopt(work, "")
    assert second.room() == 0
    assert second.ended(0.0) == []
    first.path("gate").touch()
    assert second.next() == AttemptEnded(1, None)
    assert first.path("1.exit").read_text() == "0\n"
    assert second.room() == 1
    wait_until(lambda: not is_held(work.lock), 30)  # its shell lets go of it a moment after it told
    assert not make(parallel=1).adopt(work, ""), "it is over"
    assert not make(parallel=1).adopt(second.work(7, "true"), ""), "it never was"


def test_a_run_of_another_machine_is_not_looked_after_here(make: Make) -> None:
    first, second = make(parallel=1), make(parallel=1)
    work = first.shell(1, WAITING)
    first.wait_for("program.pid", "\n")
    host, place = second.handle.split(" ")
    for other in ("elsewhere", f"elsewhere 1{place}"):
        with pytest.raises(
            SweepError, match=f"continues on elsewhere; this is another machine or container, {host}"
        ):
            second.adopt(work, other)
    assert second.adopt(work, f"its-former-name {place}")
    first.path("gate").touch()
    assert second.next() == AttemptEnded(1, None)


def test_adopted_and_stopped(make: Make) -> None:
    first, second = make(parallel=1), make(parallel=1)
    work = first.shell(1, WAITING)
    first.wait_for("program.pid", "\n")
    assert second.adopt(work, "")
    second.stop([1], kill=False)
    assert second.next() == AttemptEnded(1, None)
    assert first.path("1.exit").read_text() == "143\n"


def test_adopted_and_killed(make: Make) -> None:
    first, second = make(parallel=1), make(parallel=1)
    work = first.shell(1, WAITING)
    first.wait_for("program.pid", "\n")
    assert second.adopt(work, "")
    second.stop([1], kill=True)
    assert second.next() == AttemptEnded(1, 137)
    assert first.path("1.exit").read_text() == "137\n"


def test_adopted_with_something_left_behind(make: Make) -> None:
    first, second = make(parallel=1), make(parallel=1)
    work = first.shell(1, "setsid sleep 1000 & echo $! >left.pid; until [ -e gate ]; do sleep 0.01; done")
    left = int(first.wait_for("left.pid", "\n"))
    assert second.adopt(work, "")
    first.path("gate").touch()
    assert second.next() == AttemptEnded(1, None), "its exit status counts, not who holds its lock"
    os.kill(left, signal.SIGKILL)


def test_a_run_that_is_just_being_started_is_adopted(make: Make) -> None:
    import fcntl

    engine = make(parallel=1)
    work = engine.work(1, "true")
    with open(work.lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timer = threading.Timer(0.2, lambda: print(123456, file=file, flush=True))
        timer.start()
        assert group_of(work.lock) == 123456
        timer.join()
