"""Local disks and others."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.filesystem.file_systems import network_file_system


def test_a_local_disk_is_no_network(tmp_path: Path) -> None:
    assert network_file_system(tmp_path / "not" / "there") is None
