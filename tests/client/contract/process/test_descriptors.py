"""Descriptors that the training process, or a library in it, closes or uses itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.spooled import rows, stop_autostart

from rla_client.contract.agent.places import Places
from rla_client.contract.process.descriptors import FLOOR, OwnFile, close_own, identity, leads_to, lift
from rla_client.contract.spool.segments import segment_numbers, stream_names
from rla_client.contract.spool.writer_liveness import writer_alive

TRAINING = """
import os, sys
from rla_client import logger

def log(first, last):
    for step in range(first, last):
        logger.record_tabular("step", step)
        logger.dump_tabular()

def own_descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    return found

before = set(own_descriptors())
logger.configure(sys.argv[1], ["csv"])
log(0, 100)
"""

CLOSING = """
os.closerange(3, 1024)
taken = [open(f"{sys.argv[2]}/{number}", "wb+", buffering=0) for number in range(int(sys.argv[3]))]
for file in taken:
    file.write(b"mine")
"""

ENDING = """
log(100, 3000)
assert len(sys.argv) < 5 or logger.flush(60), "all that was logged is durable"
for file in taken:
    file.seek(0)
    assert file.read() == b"mine"
logger.reset()
assert all(not file.closed and os.fstat(file.fileno()) for file in taken)
"""


def train(code: str, tmp_path: Path, *arguments: object, **options: Any) -> None:
    (tmp_path / "user").mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-c",
        code,
        str(tmp_path / "run"),
        str(tmp_path / "user"),
        *map(str, arguments),
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, done.stderr


def steps(places: Places) -> list[int]:
    return [row.values["step"] for row in rows(places)]


@pytest.mark.parametrize("taken", [0, 1000])
def test_all_descriptors_are_closed_in_the_middle_of_a_training(
    taken: int, places: Places, tmp_path: Path
) -> None:
    """Rows go on without loss or double, and none goes into a file that got the number of ours."""
    stop_autostart(places)
    train(TRAINING + CLOSING + ENDING, tmp_path, taken)
    assert steps(places) == list(range(3000))


def test_the_agent_gets_all_rows_of_a_training_whose_descriptors_were_closed(
    agent: Any, tmp_path: Path
) -> None:
    """The agent does not take the writer for dead meanwhile: a flush says so, and waits for nothing else."""
    assert agent.alive
    train(TRAINING + CLOSING + ENDING, tmp_path, 1000, "flush")
    lines = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("step")
    assert [int(line.split(",")[column]) for line in lines[1:]] == list(range(3000))


SILENT = """
print("begun", flush=True)
sys.stdin.readline()
os.closerange(3, 1024)
print("closed", flush=True)
for end in sys.stdin:
    if end == "row\\n":
        log(100, 101)
    elif end == "exec\\n":
        os.execv("/bin/sh", ["sh", "-c", "echo executed; read end"])
    elif end == "segment\\n":
        text = "x" * (1 << 20)
        for step in range(20):
            logger.record_tabular("text", text)
            logger.dump_tabular()
        os.closerange(3, 1024)
    print("done", flush=True)
"""


@pytest.mark.parametrize("end", ["exec", "kill"])
def test_a_writer_lives_as_long_as_its_program_whatever_is_closed(
    end: str, places: Places, tmp_path: Path
) -> None:
    """In the lock's and the segment's place there may be nothing for hours: until the next row."""
    stop_autostart(places)
    (tmp_path / "user").mkdir()
    command = [sys.executable, "-c", TRAINING + SILENT, str(tmp_path / "run"), str(tmp_path / "user")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def say(word: str) -> None:
        print(word, file=stdin, flush=True)
        while stdout.readline().strip() not in {"closed", "done", "executed"}:
            assert process.poll() is None

    try:
        assert "begun" in iter(lambda: stdout.readline().strip(), "")
        (stream,) = stream_names(places.spool)
        say("close")
        assert writer_alive(places.spool / stream)
        say("row")
        assert writer_alive(places.spool / stream)
        say("segment")
        assert segment_numbers(places.spool / stream)[-1] > 1
        assert writer_alive(places.spool / stream)
        if end == "exec":
            say("exec")
            assert not writer_alive(places.spool / stream)
    finally:
        process.kill()
        process.wait()
        stdin.close()
        stdout.close()
    assert not writer_alive(places.spool / stream)


SAVING = """
import os, sys, threading
import numpy as np
import torch
from rla_client import VideoRecorder, exp_manager, time_step_holder

exp_manager.configure("t", {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}},
                      sys.argv[1], code_root=sys.argv[2])
exp_manager.log_files_gen()
exp_manager.new_saver(5)
VideoRecorder.prepare((40, 128, 128, 3))
video = np.zeros((40, 128, 128, 3), np.uint8)
frames = VideoRecorder("frames.gif")
frames.add(video[0])

def end_of_threads(prefix):
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(60)

def save(step, count):
    time_step_holder.set_time(step)
    exp_manager.save_checkpoint({"w": torch.full((count,), float(step)), "step": step})
    VideoRecorder.save("whole.gif", video)

if sys.argv[3] == "warm":
    end_of_threads("rla-")
    save(1, 1000)
os.closerange(3, 1024)
taken = [open(f"{sys.argv[2]}/{number}", "wb+", buffering=0) for number in range(1000)]
for file in taken:
    file.write(b"mine")
save(2, 1000)
save(3, 1000)
save(4, 20 << 20)  # larger than the slots: a new arena, the former one goes
end_of_threads("rla-")
save(5, 1000)
frames.add(video[1])
frames.close()
assert exp_manager.flush(60)
for step in (2, 3, 4, 5):
    found, content = exp_manager.load_checkpoint(step)
    assert found == step and bool((content["w"] == step).all())
exp_manager.close()
for file in taken:
    file.seek(0)
    assert file.read() == b"mine", file.name
assert all(os.fstat(file.fileno()) for file in taken)
"""


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["warm", pytest.param("cold", marks=pytest.mark.further)])
def test_checkpoints_and_videos_of_a_training_whose_descriptors_were_closed(
    memory: str, agent: Any, tmp_path: Path
) -> None:
    """Shared memory that is there, or being made right then: nothing goes into another file or is lost."""
    pytest.importorskip("torch")
    assert agent.alive
    train(SAVING, tmp_path, memory)
    names = [path.name for path in (tmp_path / "run").glob("results/t/*/*/*/*/*.gif")]
    steps = [2, 3, 4, 5] if memory == "cold" else [1, 2, 3, 4, 5]
    assert sorted(names) == sorted(["0-frames.gif", *(f"{step}-whole.gif" for step in steps)])


AGAIN = """
for step in range(100, 3000, 100):
    os.closerange(3, 1024)
    log(step, step + 100)
logger.reset()
"""


def test_descriptors_that_are_closed_again_and_again(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    train(TRAINING + AGAIN, tmp_path)
    assert steps(places) == list(range(3000))


LOW = """
held = {number: name for number, name in own_descriptors().items() if number not in before}
assert held and min(held) >= 3, held
log(100, 200)
logger.reset()
"""


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_ours_are_no_standard_streams(closed: tuple[int, ...], places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    shell = 'exec "$@" ' + " ".join(f"{number}>&-" for number in closed)
    (tmp_path / "user").mkdir()
    code = TRAINING + LOW
    folders = [str(tmp_path / "run"), str(tmp_path / "user")]
    command = ["/bin/sh", "-c", shell, "sh", sys.executable, "-c", code, *folders]
    assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert steps(places) == list(range(200))


CHATTY = """
import os, sys, threading
os.close(1), os.close(2)
stop = threading.Event()
def chat():  # as a C library does
    while not stop.is_set():
        for number in (1, 2):
            try:
                os.write(number, b"chat" * 64)
            except OSError:
                pass
thread = threading.Thread(target=chat)
thread.start()
from rla_client import exp_manager, logger
root, code = sys.argv[1], sys.argv[2]
exp_manager.configure("t", rla_config={"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["."]}},
                      data_root=root, code_root=code)
exp_manager.log_files_gen()
for step in range(20):
    logger.record_tabular("step", step)
    logger.dump_tabular()
stop.set()
thread.join()
assert exp_manager.flush(60)
exp_manager.close()
"""


def test_what_a_library_prints_gets_into_no_file(agent: Any, tmp_path: Path) -> None:
    """Descriptors 1 and 2 are closed, and something writes to them while our files are opened."""
    assert agent.alive
    code, run = tmp_path / "code", tmp_path / "run"
    code.mkdir()
    for number in range(20):
        (code / f"module{number}.py").write_text(f"number = {number}\n" * 50)
    subprocess.run([sys.executable, "-c", CHATTY, run, code], check=True, timeout=300)
    (csv,) = run.glob("log/t/*/*/*/*/progress.csv")
    assert csv.read_text().count("\n") == 21
    assert len(list(run.glob("code/t/*/*/*/*/module*.py"))) == 20
    for path in run.rglob("*"):
        assert not path.is_file() or b"chatchat" not in path.read_bytes(), path


DAEMON = """
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        kept = os.dup2(write, 200)
        os.closerange(0, 200)
        os.closerange(201, 1024)
        os.open("/dev/null", os.O_RDWR), os.dup(0), os.dup(0)
        log(100, 200)
        logger.reset()
        os.write(kept, b"x")
        os._exit(0)
    os._exit(0)
os.close(write)
os.wait()
assert os.read(read, 1) == b"x"
log(200, 300)
logger.reset()
"""


def test_a_training_that_turns_itself_into_a_daemon(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    train(TRAINING + DAEMON, tmp_path)
    assert sorted(steps(places)) == list(range(300))


def test_lifted_closed_and_told_apart(tmp_path: Path) -> None:
    low = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    high = lift(low)
    known = identity(high)
    assert high >= FLOOR
    assert not os.get_inheritable(high)
    other = os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT)
    os.dup2(other, high)
    assert not leads_to(high, known)
    close_own(high, known)
    assert leads_to(high, identity(other)), "somebody else's is not closed"
    close_own(high, identity(other))
    os.close(other)


def test_an_own_file_is_asked_before_each_use(tmp_path: Path) -> None:
    with OwnFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)) as ours:
        number = ours.number
        other = os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT)
        os.dup2(other, number)
        with pytest.raises(OSError, match="Bad file descriptor"):
            assert ours.number
    assert leads_to(number, identity(other)), "somebody else's is not closed"
    os.close(number)
    os.close(other)


def test_room_for_high_numbers_is_made_beside_the_training() -> None:
    code = """
import threading, time
from rla_client.contract.process.descriptors import FLOOR, grow_soon

def table():
    return int(open("/proc/self/status").read().split("FDSize:")[1].split()[0])

idle = threading.Thread(target=time.sleep, args=(60,), daemon=True)
idle.start()
assert table() < FLOOR
grow_soon()
until = time.monotonic() + 30
while table() < FLOOR and time.monotonic() < until:
    time.sleep(0.01)
assert table() >= FLOOR
"""
    # of a shell, whose own table is small: a child's is as large as its parent's open files need
    subprocess.run(["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, code], check=True)
