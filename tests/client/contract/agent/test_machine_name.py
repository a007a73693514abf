"""Names of machines: one each, also for clones of one host name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla_client.contract.agent import machine_name as module
from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import Places
from rla_client.contract.run_part import MACHINE


def places(folder: Path) -> Places:
    folder.mkdir()
    return Places(folder / "state", folder / "run")


def test_clones_of_one_host_name_differ_and_a_machine_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = places(tmp_path / "a"), places(tmp_path / "b")
    name = machine_name(here)
    assert machine_name(here) == name != machine_name(other)
    monkeypatch.setattr(module, "_cards", lambda: ["02:00:00:00:00:01"])
    assert machine_name(here) != name, "a clone that has the state folder, too"


@pytest.mark.parametrize("host", ["node-1.cluster.example", "x" * 64, "ünï.de", "-", "a_b c"])
def test_a_name_can_be_part_of_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    class Uname:
        nodename = host

    monkeypatch.setattr("os.uname", Uname)
    assert MACHINE.fullmatch(machine_name(places(tmp_path / "a")))
