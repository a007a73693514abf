"""A Slurm of one node on this machine: munged, slurmctld and slurmd with a configuration of their own.

It accounts for nothing (`sacct` fails, as on clusters without slurmdbd), needs no cgroups and no systemd, and
declares more cores, memory and GPUs than there are: its jobs are tests, which mostly wait. The daemons run as
root, so jobs do. slurmd is the child of a small process that adopts the orphans below it (a subreaper):
whatever a job started, detached or not, is found below that process, and `kill_node` ends all of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from rla_client.contract.agent.places import Places
from support.ports import free_port
from support.waiting import DEADLINE_S, TIME_FACTOR, wait_until

CORES: Final = 4
MEMORY_MB: Final = 8_192
GPUS: Final = 2
NODE_LOST_S: Final = 10
"""How long slurmctld waits for an answer of the node before it takes it for dead; a busy machine must answer
in that time. `lose_node` does not wait for it."""
PATIENCE_S: Final = 5
"""How long a daemon tries to reach another; `lose_node` takes this long, and a little more."""
KILL_WAIT_S: Final = 3
"""From SIGTERM to SIGKILL, for a job that was cancelled or ran out of time."""
GRACE_S: Final = 300
"""For a job of the partition `low` that gives way to one of `main`: longer than a test waits."""
PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
FOREIGN: Final = ("SLURM", "SBATCH", "SQUEUE", "SCANCEL", "SINFO", "SUBMITIT")
"""Variables that would lead elsewhere, or make jobs of ours seem part of one that the tests run in."""
SYSTEM_PATH: Final = "/usr/sbin:/sbin"  # of the daemons; a user's PATH may be without
NODE: Final = """
import contextlib, ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
subprocess.Popen(sys.argv[1:])
with contextlib.suppress(ChildProcessError):
    while True:
        os.wait()
"""
CONFIGURATION: Final = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
DefMemPerCPU=100
JobRequeue=1
ReturnToService=2
SlurmdTimeout={node_lost_s}
MessageTimeout={patience_s}
KillWait={kill_wait_s}
MinJobAge={remembered_s}
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory_mb} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=low Nodes={host} PriorityTier=0 GraceTime={grace_s} PreemptMode=REQUEUE State=UP
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


def missing_programs() -> list[str]:
    """What of `PROGRAMS` is not installed here."""
    return [name for name in PROGRAMS if _find(name) is None]


class SlurmLab:
    """The three daemons. After `start`, `environment` leads `sbatch`, submitit and the rest to them.

    Args:
        remembered_s: MinJobAge: how long an ended job is known to `scontrol show job`.

    A test that makes one is skipped where Slurm is not installed, or without root.
    """

    def __init__(self, remembered_s: int = 300) -> None:
        if os.geteuid() != 0:
            pytest.skip("Slurm's daemons start jobs as root only")
        if missing := missing_programs():
            pytest.skip(f"not installed: {', '.join(missing)}")
        self.folder = Path(tempfile.mkdtemp(prefix="rla-slurm-", dir="/tmp"))  # a socket path has 107 bytes
        self.host = socket.gethostname().partition(".")[0]
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        (self.folder / "gres.conf").write_text(f"Name=gpu File=/dev/tty[1-{GPUS}]\n")  # any files will do
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self.folder,
                host=self.host,
                controller_port=free_port(),
                node_port=free_port(),
                cores=CORES,
                memory_mb=MEMORY_MB,
                gpus=GPUS,
                node_lost_s=NODE_LOST_S,
                patience_s=PATIENCE_S,
                kill_wait_s=KILL_WAIT_S,
                grace_s=GRACE_S,
                remembered_s=remembered_s,
            )
        )

    def start(self) -> SlurmLab:
        """Start all three, and wait until the node takes jobs."""
        at = self.folder
        names = [
            f"--{name}={at}/munge.{name.partition('-')[0]}" for name in ("pid-file", "log-file", "seed-file")
        ]
        self._run(
            "munged",
            "--foreground",
            "--force",
            f"--socket={at}/munge.socket",
            f"--key-file={at}/munge.key",
            *names,
        )
        wait_until((at / "munge.socket").exists, what=self._told("a socket of munged"))
        self._run("slurmctld", "-D", "-f", f"{at}/slurm.conf")
        self.start_node()
        return self

    def start_node(self) -> None:
        """Start slurmd, and wait until its node takes jobs."""
        slurmd = _find("slurmd")
        assert slurmd is not None
        self._run(sys.executable, "-c", NODE, slurmd, "-D", "-f", f"{self.folder}/slurm.conf", name="slurmd")
        wait_until(
            lambda: self.node_state() in {"idle", "mixed", "allocated"}, what=self._told("an idle node")
        )

    def kill_node(self) -> None:
        """SIGKILL to slurmd, to its jobs and to all that they started: the machine died."""
        node = self._daemons.pop("slurmd", None)
        if node is None:
            return
        above = psutil.Process(node.pid)
        wait_until(lambda: _kill_all(above), what="the end of all processes of the node")
        node.kill()
        node.wait()

    def lose_node(self) -> None:
        """`kill_node`, and slurmctld knows at once: jobs are requeued, or `NODE_FAIL` if they may not be.

        It returns once slurmctld has given up telling the node to end them: if that came through after
        `start_node`, it would end the job of the same id that runs by then, as `FAILED`.
        """
        self.kill_node()
        self.ask("scontrol", "update", f"nodename={self.host}", "state=down", "reason=lost")
        idle = re.compile(r"Agent queue size:\s+0\n(?s:.*)Agent count:\s+0\n")
        wait_until(
            lambda: idle.search(self.ask("sdiag")), what=self._told("slurmctld without messages to send")
        )

    def pause(self) -> None:
        """slurmctld answers no more."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the daemons and all jobs; their folder goes, too."""
        self.kill_node()
        for process in self._daemons.values():
            process.kill()
            process.wait()
        self._daemons.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def node_state(self) -> str:
        """As `sinfo` tells it, such as `idle`, `down*`; "" while slurmctld does not answer."""
        return self.ask("sinfo", "--noheader", "--format=%T", check=False).strip()

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of `scontrol show job`; none once slurmctld has forgotten the job."""
        told = self.ask("scontrol", "--oneliner", "show", "job", job_id, check=False)
        return dict(word.split("=", 1) for word in told.split() if "=" in word)

    def job_state(self, job_id: str) -> str:
        """Such as `PENDING`, `RUNNING`, `COMPLETED`, `NODE_FAIL`; "" for a job that is not known."""
        return self.job(job_id).get("JobState", "")

    def release(self, job_id: str) -> None:
        """A job that was requeued may start soon: Slurm itself has it wait for two minutes.

        Not before the node is done with it, and a second further: else the node ends the new start with the
        former one, whose credential was revoked.
        """
        steps = f"slurmstepd: [{self.job(job_id).get('JobId')}."
        wait_until(
            lambda: not any(steps in words for words in self._node_processes()),
            what=lambda: f"the end of {steps} of {job_id}",
        )
        self.ask("scontrol", "update", f"jobid={job_id}", "starttime=now+2seconds")

    def ask(self, *command: str, check: bool = True) -> str:
        """What a program of Slurm prints."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * TIME_FACTOR,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stderr}{self._logs()}"
        return done.stdout

    def _run(self, program: str, *words: str, name: str = "") -> None:
        name = name or program
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [_find(program) or program, *words],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _node_processes(self) -> Iterator[str]:
        node = self._daemons.get("slurmd")
        for process in psutil.Process(node.pid).children(recursive=True) if node else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield " ".join(process.cmdline())

    def _told(self, what: str) -> Callable[[], str]:
        return lambda: f"{what}; {self._logs()}"

    def _logs(self) -> str:
        found = [*self.folder.glob("*.out"), *self.folder.glob("*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in found)


@pytest.fixture
def slurm_lab(places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """A Slurm that takes jobs, named in the environment; it ends before `places` looks for leaks."""
    lab = SlurmLab()
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        monkeypatch.delenv(name)
    for name, value in lab.environment.items():
        monkeypatch.setenv(name, value)
    try:
        yield lab.start()
    finally:
        lab.stop()


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def _kill_all(above: psutil.Process) -> bool:
    """Whether nothing lives below this process any more; what does gets SIGKILL."""
    found = False
    for process in above.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found = True
                process.kill()
    return not found
