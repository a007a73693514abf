"""A fork, killed at every file-system call that it makes: the run's own data are there, each once."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import stream_names

pytest.importorskip("torch", reason="needs PyTorch")

SOURCE_ROWS, OWN_ROWS = 7, 5
LAST_S = 120.0
STATES = ("absent", "up", "stopped")
THIRDS = [range(first, 100, 3) for first in range(3)]  # of the calls; together all
FULL = [pytest.param(state, range(100), marks=pytest.mark.soak) for state in STATES]
TRAINING = """
import os, signal, sys, time
import numpy, torch
from rla_client import ExperimentLoader, exp_manager, logger, time_step_holder
from rla_client.checkpoint import saver
from rla_client.stream import arena
from rla_client.run.resume import fork_files
from rla_client.media.image_recorder import ImgRecorder
root, code, date = sys.argv[1:4]
numbers = range(*map(int, sys.argv[4:]))
fork_files.PLACED_S = 0.2
arena.SMALL_ARENA_BYTES = saver.FIRST_SLOT_BYTES = 4096  # killed children leave theirs behind
CONFIG = {'LOG_USED': ['csv', 'tensorboard'], 'AGENT': {'autostart': False},
          'BACKUP_CONFIG': {'backup_code_dir': ['src']}}

def rows(first, count):
    for number in range(first, first + count):
        time_step_holder.set_time(number)
        logger.record_tabular('x', number)
        logger.dump_tabular()

def begin(name):
    exp_manager.configure('t', CONFIG, root, code_root=code)
    exp_manager.set_hyper_param(name=name)
    exp_manager.add_record_param(['name'])
    exp_manager.log_files_gen()

def save(name, value):
    exp_manager.save_checkpoint({'w': torch.full((3,), float(value))}, checkpoint_name=name)

def killed_at(left):
    def count(event, arguments):
        nonlocal left
        if left is not None and (event in EVENTS or (event == 'open' and arguments[2] & os.O_ACCMODE)):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    def end():
        nonlocal left
        left = None
    return end

EVENTS = {'os.rename', 'os.link', 'os.mkdir', 'os.remove', 'os.rmdir', 'os.truncate', 'shutil.copyfile'}

def fork_once(number):
    begin(f'fork{number}')
    base = 1000 * (number + 1)
    rows(base, FIVE)
    exp_manager.new_saver()
    time_step_holder.set_time(3)
    save('own', base)
    save('both', base)
    ImgRecorder.save('own', numpy.full((4, 4, 3), 7, dtype=numpy.uint8), add_timestamp=False)
    loader = ExperimentLoader()
    loader.config('t', date, root)
    end = killed_at(number)
    loader.fork_log_files()
    end()
    rows(base + 100, FIVE)
    save('later', base)
    print(number, flush=True)
    os._exit(7)

if not date:
    begin('source')
    rows(0, SEVEN)
    exp_manager.new_saver()
    time_step_holder.set_time(3)
    save('both', -1)
    open(exp_manager.results_dir + '/3-note.txt', 'w').write('source')
    exp_manager.close()
else:
    for number in numbers:
        child = os.fork()
        if child == 0:
            fork_once(number)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 7:
            break
        assert ended == -signal.SIGKILL, ended
""".replace("SEVEN", str(SOURCE_ROWS)).replace("FIVE", str(OWN_ROWS))


def train(*arguments: object) -> list[int]:
    """Run the script; the forks that came to their end."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, *map(str, arguments)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split() if line.isdigit()]


def values(folder: Path) -> Counter[int]:
    """The rows of all tables of a run, those before the fork too."""
    found: Counter[int] = Counter()
    for table in folder.rglob("progress.csv"):
        with table.open(newline="") as file:
            found.update(int(row["x"]) for row in csv.DictReader(file))
    return found


def weights(folder: Path, name: str) -> list[float]:
    import torch

    files = folder.rglob(f"{name}_*.pt")
    return sorted(float(torch.load(path, weights_only=True)["w"][0]) for path in files)


def events(folder: Path) -> Counter[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / "tb" / "events"), size_guidance={"scalars": 0})
    reader.Reload()
    return Counter(int(event.value) for event in reader.Scalars("x"))


BRIEF = [
    pytest.param(state, calls, marks=() if state == "up" else pytest.mark.further)
    for state, calls in zip(STATES, THIRDS, strict=True)
]


@pytest.mark.slow
@pytest.mark.parametrize(("state", "calls"), [*BRIEF, *FULL])
def test_a_kill_at_any_call_of_a_fork_loses_and_doubles_nothing(
    new_agent: Callable[..., Any],
    places: Places,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    state: str,
    calls: range,
) -> None:
    data, code = tmp_path / "data", tmp_path / "code"
    (code / "src").mkdir(parents=True)
    (code / "src" / "train.py").write_text("pass\n")
    data.mkdir()
    agent = new_agent().start()
    train(data, code, "", 0)
    (source,) = data.glob("log/t/*/*/*/*")
    wait_until(lambda: not stream_names(places.spool))
    if state == "absent":
        agent.stop()
    if state == "stopped":
        agent.send_signal(signal.SIGSTOP)
    whole = train(data, code, "/".join(source.parts[-4:])[:26], calls.start, calls.stop, calls.step)
    assert whole, "no fork came to its end: more calls than were tried"
    if state == "absent":
        agent.start()
    if state == "stopped":
        agent.send_signal(signal.SIGCONT)
    wait_until(lambda: not stream_names(places.spool), LAST_S)
    wait_until(lambda: not list(data.rglob(".rla-tmp-fork*")), what="copies of killed forks are removed")
    forks = sorted(path for path in data.glob("log/t/*/*/*/*") if path != source)
    for number, log in zip(calls[: calls.index(max(whole)) + 1], forks, strict=True):
        base = 1000 * (number + 1)
        returned = [*range(base, base + OWN_ROWS)]
        if number in whole:
            returned += range(base + 100, base + 100 + OWN_ROWS)
        copied = [*range(SOURCE_ROWS)]
        found = values(log)
        assert found in (Counter(returned), Counter(returned + copied)), (number, found)
        assert events(log) == found, number
        if number in whole:
            assert [row for row in found if row < base] == copied
        index = log.relative_to(data / "log")
        kept = data / "checkpoint" / index
        assert weights(kept, "own") == [base], number
        assert base in weights(kept, "both"), number
        assert weights(kept, "both").count(base) == 1, number
        assert weights(kept, "later") == ([base] if number in whole else []), number
        assert [path.name for path in (data / "results" / index).rglob("own.png")] == ["own.png"], number
        assert (data / "code" / index / "src" / "train.py").exists(), number
