"""RaySampler on two nodes of ray that share nothing but a cable: two network namespaces and a veth pair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import TIME_FACTOR

HEAD, OTHER = "10.79.0.1", "10.79.0.2"
PORT = 6399
DRIVER = """
import json, sys
import numpy as np
import ray
from environments import Counting, Seeing
from rla_client.launcher import (
    DefaultWorker, FragmentWorker, LocalSampler, RaySampler, VecWorker, WorkerFactory
)

class Where(Counting):
    def reset(self, **how):
        observation, info = super().reset(**how)
        return observation, {**info, "node": ray.util.get_node_ip_address()}

ray.init(address=sys.argv[1], log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[2]}})
found = {}
for worker_class in (DefaultWorker, FragmentWorker, VecWorker):
    arguments = {} if worker_class is DefaultWorker else {"n_envs": 3}
    factory = WorkerFactory(seed=5, n_workers=2, worker_class=worker_class, worker_args=arguments)
    there = RaySampler(Seeing(), Where(), worker_factory=factory)
    here = LocalSampler(Seeing(), Counting(), worker_factory=factory)
    for epoch in (0, 3):
        one, two = (sampler.obtain_samples(epoch, 60) for sampler in (there, here))
        same = all(
            np.array_equal(getattr(one, name), getattr(two, name))
            for name in ("observations", "actions", "rewards", "lengths", "step_types")
        )
        found[f"{worker_class.__name__} {epoch}"] = same, sorted(set(one.episode_infos["node"].tolist()))
    there.shutdown_worker()
print(json.dumps(found))
"""


class Nodes:
    """Two namespaces with a node of ray in each."""

    def __init__(self, folder: Path) -> None:
        self.names = [f"rla{os.getpid()}{end}" for end in "ab"]
        self.folder = folder
        self._ip("link", "add", self.names[0], "type", "veth", "peer", "name", self.names[1])
        for name, address in zip(self.names, (HEAD, OTHER), strict=True):
            self._ip("netns", "add", name)
            self._ip("link", "set", name, "netns", name)
            self._ip("-n", name, "addr", "add", f"{address}/30", "dev", name)
            for device in (name, "lo"):
                self._ip("-n", name, "link", "set", device, "up")

    def run(self, number: int, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, and wait for its end."""
        return subprocess.run(
            ["ip", "netns", "exec", self.names[number], *command],
            env={
                **os.environ,
                "RAY_TMPDIR": str(self.folder),
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_AUTH_MODE": "disabled",  # a token would be in this user's home
            },
            capture_output=True,
            text=True,
            timeout=120 * TIME_FACTOR,
            check=check,
        )

    def start(self) -> None:
        """Start ray on both, with one core each."""
        ray = str(Path(sys.executable).parent / "ray")
        common = ["--num-cpus=1", "--object-store-memory=100000000"]
        here = [f"--node-ip-address={HEAD}", f"--port={PORT}", "--include-dashboard=false"]
        self.run(0, ray, "start", "--head", *here, *common)
        self.run(1, ray, "start", f"--address={HEAD}:{PORT}", f"--node-ip-address={OTHER}", *common)

    def remove(self) -> None:
        """End what runs in the namespaces, and them."""
        for name in self.names:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in pids.stdout.split():
                subprocess.run(["kill", "-9", pid], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="needs the extra ray")
    if os.getuid() or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    folder = Path("/tmp", f"rla-ray-{os.getpid()}")  # a short path: ray puts sockets there
    folder.mkdir()
    made = Nodes(folder)
    yield made
    made.remove()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.further
@pytest.mark.scale
@pytest.mark.brief
def test_two_nodes_sample_what_one_process_does(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.start()
    path = os.pathsep.join([str(Path(__file__).parents[1] / "client" / "launcher"), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)
    done = nodes.run(0, sys.executable, "-c", DRIVER, f"{HEAD}:{PORT}", path, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 6
    for name, (same, where) in found.items():
        assert same, f"{name} differs from LocalSampler"
        assert where == [HEAD, OTHER], f"{name} ran on {where}"
