"""One run on two machines: what each writes, who knows how it stands, what lies on the master."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine, told
from support.ports import free_port
from support.replication_lab import Sshd
from support.waiting import TIME_FACTOR, wait_until

from rla_client.contract.agent.places import Places
from rla_client.database.database import Database

TRAINING = """
import os, signal, sys
store, late, die = "store" in sys.argv, "late" in sys.argv, "die" in sys.argv
if store:
    import torch
    import torch.distributed as dist
if store and not late:
    dist.init_process_group("gloo")
import rla_client
from rla_client import exp_manager, logger, time_step_holder
resumed = {"run_id": "one", "resume": "allow"} if "resumed" in sys.argv else {}
exp_manager.configure(
    "spread", os.path.abspath("rla_config.yaml"), os.environ["RLA_DATA_ROOT"], code_root=".", **resumed
)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen(all_ranks=True)
rank = int(os.environ["RANK"])
start = 0 if exp_manager.resumed_from is None else exp_manager.resumed_from + 1
for step in range(start, 100):
    time_step_holder.set_time(step)
    logger.record_tabular("x", rank * 1000 + step)
    logger.dump_tabular()
    if late and step == 49:
        dist.init_process_group("gloo")
    if resumed and step == 49 and not rank:
        dist.barrier()
        exp_manager.save_checkpoint({"w": torch.ones(3)})
if resumed and rank and not start:
    dist.barrier()  # it is far ahead of rank 0 when that saves
rla_client.log_samples([{"prompt": "p", "completion": f"of {rank}", "reward": 1.0}], step=100)
if store:
    dist.barrier()
assert exp_manager.flush(100)
if store:
    dist.barrier()
if die and (rank or resumed):
    os.kill(os.getpid(), signal.SIGKILL)
"""
JOINING = """
import sys
import rla_client
run = rla_client.join(sys.argv[1], role="actor")
for step in range(100):
    rla_client.log({"x": 2000 + step}, step=step)
run.log({"table": rla_client.Table(columns=["a"], data=[[1]])}, step=100)
"""


@pytest.fixture
def machines(
    tmp_path: Path, places: Places, master: Sshd
) -> Iterator[Callable[..., tuple[Machine, Machine]]]:
    """Two machines with agents; their configuration as given."""
    made: list[Machine] = []

    def make(**config: Any) -> tuple[Machine, Machine]:
        whole = {"SEND_LOG_FILE": True, "REMOTE_SETTING": master.remote(), **config}
        made.extend(Machine(tmp_path, places.runtime, host, whole) for host in ("node-a", "node-b"))
        for machine in made:
            machine.start_agent()
        return made[0], made[1]

    yield make
    for machine in made:
        machine.kill_agent()


def train(machines: tuple[Machine, Machine], *words: str, **environment: str) -> list[tuple[int, str, str]]:
    """Rank 0 on the first machine, rank 1 on the second: exit code, output, errors of each."""
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": "2",
        "GLOO_SOCKET_IFNAME": "lo",  # nobody resolves the machines' names
    }
    processes = []
    for rank, machine in enumerate(machines):
        (machine.folder / "train.py").write_text(TRAINING)
        processes.append(machine.start("train.py", *words, RANK=str(rank), **job, **environment))
    found = []
    for process in processes:
        out, err = process.communicate(timeout=300 * TIME_FACTOR)
        found.append((process.returncode, out, err))
    return found


def values(table: Path) -> list[int]:
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [int(row["x"]) for row in csv.DictReader(file)]


def holds(table: Path, wanted: range) -> bool:
    return values(table) == list(wanted)


def sums_hold(folder: Path, name: str) -> bool:
    return not subprocess.run(["sha256sum", "-c", "--status", name], cwd=folder, check=False).returncode


def part_of(log: Path) -> tuple[str, dict[str, Any]]:
    """Machine and content of the one part in a log folder."""
    (path,) = log.glob("run.part.*.json")
    return path.name.removeprefix("run.part.").removesuffix(".json"), told(path)


@pytest.mark.slow
def test_machines_that_share_torchs_store_and_the_master_have_one_run(
    machines: Callable[..., tuple[Machine, Machine]], master: Sshd
) -> None:
    a, b = machines(AGENT={"sample_interval_s": 0.3})
    done = train((a, b), "store")
    assert [code for code, _, _ in done] == [0, 0], done
    (main,), (part,) = a.log_folders(), b.log_folders()
    assert main.relative_to(a.root) == part.relative_to(b.root)
    wait_until(lambda: told(main / "run.json").get("state") == "finished")
    wait_until(lambda: part_of(part)[1]["state"] == "finished")
    machine, content = part_of(part)
    assert machine.startswith("node-b-")
    assert (content["host"], content["part"], content["rows"]) == ("node-b", machine, 100)
    assert content["ranks"] == {"rank1": {"state": "finished", "reason": "", "rows": 100, "lost": 0}}
    assert content["run_id"] == told(main / "run.json")["run_id"]
    own = {"progress.rank1.csv", "warn.rank1.txt", "backup.rank1.txt"}
    own |= {f"run.part.{machine}.json", f"SHA256SUMS.{machine}", f"system.{machine}.csv"}
    assert {path.name for path in part.iterdir()} <= own
    there = master.root / main.relative_to(a.root)
    for sums in ("SHA256SUMS", f"SHA256SUMS.{machine}"):
        wait_until(partial(sums_hold, there, sums), 60, sums)  # made anew where a last sample came after
    assert values(there / "progress.csv") == list(range(100))
    assert values(there / "progress.rank1.csv") == list(range(1000, 1100))
    samples = {path.name for path in (master.root / "samples").rglob("samples*")}
    assert samples == {"samples.jsonl.gz", "samples.rank1.jsonl.gz"}


@pytest.mark.further
@pytest.mark.slow
def test_a_run_that_is_opened_before_the_process_group_is_told_once_it_is_there(
    machines: Callable[..., tuple[Machine, Machine]],
) -> None:
    a, b = machines(SEND_LOG_FILE=False)
    done = train((a, b), "store", "late", GROUP_RANK="1")  # rank 0 does not ask
    assert [code for code, _, _ in done] == [0, 0], done
    assert "rank 1 joins the run of rank 0 once torch's process group is there" in done[1][2]
    (main,), (part,) = a.log_folders(), b.log_folders()
    assert main.relative_to(a.root) == part.relative_to(b.root)
    assert values(part / "progress.rank1.csv") == list(range(1000, 1100))


@pytest.mark.slow
def test_a_resumed_run_cuts_the_rows_of_all_machines(
    machines: Callable[..., tuple[Machine, Machine]], master: Sshd
) -> None:
    a, b = machines()
    first = train((a, b), "store", "resumed", "die")
    assert [code for code, _, _ in first] == [-9, -9], first
    (part,) = b.log_folders()
    wait_until(lambda: part_of(part)[1]["state"] == "killed")
    assert part_of(part)[1]["reason"].startswith("rank1: ")
    second = train((a, b), "store", "resumed")
    assert [code for code, _, _ in second] == [0, 0], second
    (main,) = a.log_folders()
    assert b.log_folders() == [part]
    wait_until(lambda: part_of(part)[1]["state"] == "finished")
    there = master.root / main.relative_to(a.root)
    for log in (main, there):
        wait_until(partial(holds, log / "progress.csv", range(100)), 60)
    for log in (part, there):
        wait_until(partial(holds, log / "progress.rank1.csv", range(1000, 1100)), 60)
    assert values(part / "abandoned-1" / "progress.rank1.csv") == list(range(1050, 1100))
    third = train((a, a), "store", "resumed")  # rank 1 moves: what it had here is another machine's to send
    assert [code for code, _, _ in third] == [0, 0], third
    (moved,) = main.glob("progress.rank1*.csv")
    assert moved.name.startswith("progress.rank1-node-a-")
    wait_until(partial(holds, there / moved.name, range(1050, 1100)), 60)
    wait_until(partial(holds, there / "progress.csv", range(100)), 60)
    assert values(there / "progress.rank1.csv") == list(range(1000, 1100))
    run = "spread", main.relative_to(a.root / "log" / "spread").as_posix()
    frame = Database(master.root).curves([run], "x", ranks=1)
    assert frame["value"].tolist() == list(range(1000, 1100))
    assert frame["x"].tolist() == list(range(100))


@pytest.mark.slow
def test_machines_that_share_the_data_root_write_one_item(
    machines: Callable[..., tuple[Machine, Machine]], master: Sshd
) -> None:
    a, b = machines()
    done = train((a, b), "die", RLA_DATA_ROOT=str(a.root))
    assert [code for code, _, _ in done] == [0, -9], done
    (main,) = a.log_folders()
    assert b.log_folders() == []
    wait_until(lambda: list(main.glob("run.part.*.json")))
    wait_until(lambda: part_of(main)[1]["state"] == "killed")
    assert told(main / "run.json")["host"] == "node-a"
    assert values(main / "progress.rank1.csv") == list(range(1000, 1100))
    there = master.root / main.relative_to(a.root)
    wait_until(lambda: values(there / "progress.rank1.csv") == list(range(1000, 1100)), 60)
    assert not list(there.glob("SHA256SUMS.*")), "one machine sends the item"


@pytest.mark.slow
def test_machines_that_share_the_master_alone_have_one_run(
    machines: Callable[..., tuple[Machine, Machine]], master: Sshd
) -> None:
    a, b = machines()
    done = train((a, b), GROUP_RANK="1")  # rank 0 does not ask
    assert [code for code, _, _ in done] == [0, 0], done
    (main,), (part,) = a.log_folders(), b.log_folders()
    assert main.relative_to(a.root) == part.relative_to(b.root)
    there = master.root / main.relative_to(a.root)
    wait_until(partial(holds, there / "progress.csv", range(100)), 60)
    wait_until(partial(holds, there / "progress.rank1.csv", range(1000, 1100)), 60)
    (told_file,) = (a.root / ".rla-jobs").iterdir()
    assert (master.root / ".rla-jobs" / told_file.name).read_bytes() == told_file.read_bytes()


@pytest.mark.slow
def test_another_machine_joins_by_the_address(machines: Callable[..., tuple[Machine, Machine]]) -> None:
    a, b = machines()
    opening = "import rla_client, sys; rla_client.init('spread'); print(rla_client.run_address()); input()"
    main = a.start("-c", opening, RLA_DATA_ROOT=str(a.root))
    assert main.stdout is not None
    assert main.stdin is not None
    address = next(line.strip() for line in main.stdout if "#rla1." in line)
    b.say("-c", JOINING, address)
    cut_off = b.start("-c", JOINING, address[:-20])
    assert "take all of what rla_client.run_address() gives" in cut_off.communicate(timeout=100)[1]
    main.communicate("\n", timeout=100 * TIME_FACTOR)
    (part,) = b.log_folders()
    machine = part_of(part)[0]
    assert a.log_folders()[0].relative_to(a.root) == part.relative_to(b.root)
    wait_until(lambda: values(part / f"progress.actor-{machine}.csv")[:100] == list(range(2000, 2100)))
    wait_until(lambda: list((b.root / "results").rglob("*table.csv")))
    (table,) = (b.root / "results").rglob("*table.csv")
    assert table.parent.name == f"actor-{machine}"
    gone = a.start("-c", JOINING, address)
    assert "no living process of this machine writes it" in gone.communicate(timeout=100)[1]
