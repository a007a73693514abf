"""`doctor --master` against real servers, open and closed down."""

from __future__ import annotations

from pathlib import Path

from support.replication_lab import NO_EXTENSIONS, Node, Sshd, tree

from rla_agent.replicate.doctor_master import examine_master
from rla_client.config.schema import Config, load_config


def look(tmp_path: Path, remote: dict[str, object]) -> dict[str, str]:
    node = Node(tmp_path / "node", remote)
    found = examine_master(load_config(node.config), tmp_path)
    assert all(finding.fix for finding in found)
    return {finding.name: finding.level for finding in found}


def test_an_open_master(master: Sshd, tmp_path: Path) -> None:
    found = look(tmp_path, master.remote())
    found.pop("master-space", None)
    assert found == {
        "master-shell": "warning",
        "master-forwarding": "warning",
        "master-chroot": "note",
    }
    assert tree(master.root) == {}


def test_a_closed_master(tmp_path: Path) -> None:
    lines = ("ForceCommand internal-sftp", "AllowTcpForwarding no", "X11Forwarding no", "PermitTTY no")
    server = Sshd(tmp_path / "sshd", *lines).start()
    try:
        found = look(tmp_path, server.remote())
    finally:
        server.stop()
    assert not found.keys() & {"master-shell", "master-forwarding", "master-refuses"}


def test_a_small_nas(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", sftp=NO_EXTENSIONS).start()
    try:
        node = Node(tmp_path / "node", server.remote())
        found = {finding.name: finding for finding in examine_master(load_config(node.config), tmp_path)}
    finally:
        server.stop()
    lacks = {f"master-no-{name}" for name in ("posix-rename", "statvfs", "hardlink")}
    assert lacks <= found.keys()
    assert all(found[name].level == "note" for name in lacks)
    assert "moved aside" in found["master-no-posix-rename"].what
    assert "are stored once per item" in found["master-no-hardlink"].what


def test_a_server_that_sets_no_permissions(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", sftp="internal-sftp -P setstat,fsetstat").start()
    try:
        node = Node(tmp_path / "node", server.remote())
        found = {finding.name: finding for finding in examine_master(load_config(node.config), tmp_path)}
    finally:
        server.stop()
    assert found["master-modes"].level == "warning"
    assert "660 became 640" in found["master-modes"].what
    assert tree(server.root) == {}


def test_a_remote_root_that_is_not_there(master: Sshd, tmp_path: Path) -> None:
    node = Node(tmp_path / "node", master.remote(remote_data_root=f"{master.root}/mistyped"))
    (found,) = (
        one for one in examine_master(load_config(node.config), tmp_path) if one.name == "master-refuses"
    )
    assert "does not exist" in found.what
    assert "rla-agent trust" in found.fix
    assert tree(master.root) == {}


def test_a_master_that_refuses(master: Sshd, tmp_path: Path) -> None:
    assert look(tmp_path, master.remote(host_key="SHA256:" + "A" * 43))["master-refuses"] == "fault"
    assert look(tmp_path, master.remote(remote_data_root="/proc/nowhere"))["master-refuses"] == "fault"
    refused = look(tmp_path, master.remote(port=1, password="secret"))
    assert refused == {"master-refuses": "fault", "master-password": "warning"}
    assert [finding.name for finding in examine_master(Config(), tmp_path)] == ["master-unnamed"]


def test_a_mounted_folder(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    found = look(tmp_path, {"file_transfer_protocol": "folder", "remote_data_root": str(mounted)})
    assert found.keys() <= {"master-space"}
    assert tree(mounted) == {}
