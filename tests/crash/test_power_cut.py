"""The power goes: durable rows are there, of the rest a prefix, and the agent recovers by itself."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash.zygote import Forked, Zygote
from support.loop_disk import ALL, CANARY, JOURNAL, NO_FLUSH, LoopDisk, needs_loop_disk
from support.oracle import Trainer, check_after_power_cut
from support.waiting import DEADLINE_S

from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import STATE_VARIABLE, Places
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.segments import segment_path, stream_names

pytestmark = [pytest.mark.root, needs_loop_disk]

FLAGS = (NO_FLUSH, NO_FLUSH, JOURNAL, ALL)
MOST_ROWS = 600  # between the start of a run and the cut
KEPT_FOLDERS = 8  # older runs, whose files are looked at again after each cut
CONFIG = "AGENT:\n  commit_interval_s: 0.1\n"


class Machine:
    """State folder, data root, agent and trainer on one disk; all of them go at a cut."""

    def __init__(self, disk: LoopDisk, places: Places, zygote: Zygote, chance: random.Random) -> None:
        self.disk = disk
        self.places = places
        self.runs: list[Trainer] = []  # not compared yet
        self.compared: list[tuple[Trainer, dict[Path, bytes]]] = []
        self.found = self.told = self.cuts = self.canaries = self.in_recovery = 0
        self.slowest_s = 0.0
        self._zygote = zygote
        self._chance = chance
        self._config = disk.folder.with_name("power.yaml")
        self._config.write_text(CONFIG)
        self._log = disk.folder.with_name("power-agent.log")
        self._said = disk.folder.with_name("power-trainers.log")
        self._agent: Forked | None = None

    def power_on(self) -> None:
        """Start the agent, as a reboot would."""
        self.places.create()
        self.places.stopped_marker.touch()
        (self.disk.folder / "data").mkdir(exist_ok=True)
        self._log.unlink(missing_ok=True)  # what an agent says while its disk dies is of no interest
        self._agent = self._zygote.fork("agent", "--background", "--config", str(self._config), log=self._log)

    def train(self, *arguments: str) -> Trainer:
        """A run on this disk; by chance when no arguments say how."""
        if arguments:
            return self._train(list(arguments))
        options = ["--flush-every", str(self._chance.choice([40, 150, 400]))]
        options += [
            "--burst",
            "60",
            "--pause",
            "0.005",
            "--segment-bytes",
            str(self._chance.choice([8192, 65536])),
        ]
        if self._chance.random() < 0.3:
            options.append("--worker")
        return self._train(options)

    def _train(self, options: list[str]) -> Trainer:
        folder = self.disk.folder / "data" / f"run-{self.cuts}-{len(self.runs)}"
        one = Trainer(folder, *options, zygote=self._zygote, log=self._said)
        self.runs.append(one)
        return one

    def cut(self, wait_until: Callable[..., object], flag: int | None = None) -> None:
        """Take the power, then bring the disk back."""
        flag = self._chance.choice(FLAGS) if flag is None else flag
        canary = self.disk.put_canary(self.cuts)
        self.disk.shut_down(flag)
        for one in self.runs:
            one.process.kill()
        self.power_off()
        for one in self.runs:
            one.ended()
        wait_until(self.disk.unmount, what="unmounting after the cut")
        self.disk.mount()
        content = canary.read_bytes() if canary.exists() else b""
        if flag == ALL:
            assert content == CANARY
        else:
            assert content == b"", "what was never synced survived: this is no power cut"
            self.canaries += 1
        canary.unlink(missing_ok=True)
        assert self.disk.errors() == 0, "this disk lies: no agent has to bear a damaged file system"
        self.cuts += 1

    def power_off(self) -> None:
        """Kill the agent."""
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait(30)
            self._agent = None

    def recover(self, wait_until: Callable[..., object]) -> None:
        """Power on, wait until all is taken in, compare, power off."""
        self.power_on()
        began = time.monotonic()
        wait_until(self.recovered, 60, what=lambda: f"recovery after cut {self.cuts}; {self.log()}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.compare()
        self.power_off()

    def recovered(self, timeout_s: float = DEADLINE_S) -> bool:
        """Whether the agent serves and every stream was taken in to its end."""
        assert self._agent is not None
        assert self._agent.poll() is None, f"the agent ended by itself: {self.log()}"
        try:
            return not stream_names(self.places.spool) and bool(ask_status(self.places, timeout_s))
        except RlaError:
            return False

    def compare(self) -> None:
        """After recovery: this cut's runs against what was told, and earlier runs are as they were."""
        for path in (self.places.log, self._log):
            assert not path.exists() or b"Traceback" not in path.read_bytes(), self.log()
        for one in self.runs:
            found, told = check_after_power_cut(one)
            self.found += found
            self.told += told
            path = one.folder / "run.json"
            if path.exists():
                assert json.loads(path.read_text())["state"] == "killed", path
            self.compared.append((one, contents(one.folder)))
        self.runs = []
        live = [run for run in ask_status(self.places)["runs"] if run["state"] in {"running", "stalled"}]
        assert not live, f"runs that nobody writes are called {live}"
        for one, before in self.compared:
            assert contents(one.folder) == before, f"{one.folder} changed after it was whole"
        for one, _ in self.compared[:-KEPT_FOLDERS]:
            shutil.rmtree(one.folder, ignore_errors=True)
        del self.compared[:-KEPT_FOLDERS]

    def log(self) -> str:
        """What the agent said."""
        paths = [path for path in (self.places.log, self._log, self._said) if path.exists()]
        texts = [path.read_text(errors="replace").replace("\0", "")[-3000:] for path in paths]
        left = [f"{path}: {path.stat().st_size}" for path in sorted(self.places.spool.rglob("*"))]
        try:
            told = json.dumps(ask_status(self.places, 1.0), indent=0)[:1000]
        except RlaError as error:
            told = str(error)
        return "\n".join([*texts, *left, told])


def contents(folder: Path) -> dict[Path, bytes]:
    """All files of a run."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def machine(
    places: Places, loop_disk: Callable[..., LoopDisk], chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    disk = loop_disk("disk")
    on_disk = Places(disk.folder / "state", places.runtime)
    monkeypatch.setenv(STATE_VARIABLE, str(on_disk.state))
    with Zygote() as zygote:
        machine = Machine(disk, on_disk, zygote, chance)
        yield machine
        for one in machine.runs:
            one.process.kill()
        machine.power_off()


def cut_often(machine: Machine, chance: random.Random, wait_until: Callable[..., object], cuts: int) -> None:
    """Cut `cuts` times: under running trainers, and in the middle of the recovery from the cut before."""
    while machine.cuts < cuts:
        machine.power_on()
        one = machine.train()
        target = chance.randrange(MOST_ROWS)
        wait_until(
            lambda one=one, target=target: one.told >= target, 30, what=lambda: f"rows; {machine.log()}"
        )
        machine.cut(wait_until)
        while machine.cuts < cuts and chance.random() < 0.25:
            machine.power_on()
            until = time.monotonic() + chance.random() * 0.2
            wait_until(lambda until=until: machine.recovered(0.2) or time.monotonic() > until, 30)
            machine.in_recovery += not machine.recovered(0.2)
            machine.cut(wait_until)
        machine.recover(wait_until)
    print(
        f"{machine.cuts} cuts ({machine.in_recovery} in the middle of a recovery), {machine.canaries} canaries gone; "  # noqa: E501
        f"{machine.told} rows told, {machine.found} there; slowest recovery {machine.slowest_s:.1f} s"
    )


def test_a_stream_that_was_seen_is_known_after_a_cut(
    machine: Machine, wait_until: Callable[..., object]
) -> None:
    """The agent syncs the opening frame: else rows would be there, and a run that never ends."""
    machine.power_on()
    one = machine.train("--flush-every", "20", "--burst", "20", "--pause", "0.05")
    wait_until(lambda: one.durable[0] >= 40, 30)
    machine.cut(wait_until, NO_FLUSH)
    assert stream_names(machine.places.spool)
    machine.recover(wait_until)
    assert json.loads((one.folder / "run.json").read_text())["state"] == "killed"


def test_a_stream_whose_first_segment_was_freed_is_known_after_a_cut(
    machine: Machine, wait_until: Callable[..., object]
) -> None:
    machine.power_on()
    one = machine.train("--flush-every", "20", "--burst", "20", "--pause", "0.02", "--segment-bytes", "4096")

    def freed() -> bool:
        streams = [machine.places.spool / name for name in stream_names(machine.places.spool)]
        return any(not segment_path(stream, 1).exists() for stream in streams)

    wait_until(freed, 30)
    machine.cut(wait_until, NO_FLUSH)
    machine.recover(wait_until)
    assert json.loads((one.folder / "run.json").read_text())["state"] == "killed"


def test_a_stream_of_which_only_names_are_left_goes_away(
    machine: Machine, wait_until: Callable[..., object]
) -> None:
    machine.places.create()
    machine.places.stopped_marker.touch()
    (machine.disk.folder / "data").mkdir()
    one = machine.train("--burst", "100", "--pause", "0.05")
    wait_until(lambda: one.told >= 100, 30)
    machine.cut(wait_until, JOURNAL)
    (name,) = stream_names(machine.places.spool)
    assert segment_path(machine.places.spool / name, 1).stat().st_size == 0
    machine.recover(wait_until)


@pytest.mark.slow
def test_durable_rows_survive_power_cuts(
    machine: Machine, chance: random.Random, wait_until: Callable[..., object]
) -> None:
    cut_often(machine, chance, wait_until, 12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_durable_rows_survive_a_thousand_power_cuts(
    machine: Machine, chance: random.Random, wait_until: Callable[..., object]
) -> None:
    cut_often(machine, chance, wait_until, 1000)
