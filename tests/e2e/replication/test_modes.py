"""Permissions on the master: those of the source, also when they change, and never more for a moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.prune_lab import wait_clean
from support.replication_lab import ITEM, Node, Sshd, random_bytes, wait_same, written
from support.waiting import wait_until

from rla_agent.command.transfer.verify import verify_database
from rla_agent.replicate import registry, target_config
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.config.schema import load_config

LOG = f"log/{ITEM}"


@pytest.fixture(params=["folder", "sftp"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Root and REMOTE_SETTING."""
    if request.param == "folder":
        root = tmp_path / "master"
        root.mkdir()
        yield root, {"file_transfer_protocol": "folder", "remote_data_root": str(root)}
        return
    server = Sshd(tmp_path / "sshd").start()
    yield server.root, server.remote()
    server.stop()


@pytest.fixture
def there(master: tuple[Path, dict[str, Any]]) -> Path:
    return master[0]


@pytest.fixture
def node(master: tuple[Path, dict[str, Any]], make_node: Callable[..., Node]) -> Node:
    """With a live run of a user whose umask is 077, a lab's run (002), and one that all may read."""
    made = make_node(master[1])
    for umask, name in ((0o077, ITEM), (0o002, ITEM.replace("000001", "000002")), (0o022, f"other/{ITEM}")):
        before = os.umask(umask)
        try:
            _fill(made, name)
        finally:
            os.umask(before)
    return made


def _fill(node: Node, item: str) -> None:
    log = node.run(item)
    (log / "progress.csv").write_text("a,b\n1,2\n")
    for kind in ("results", "code", "tmp_data"):
        (node.item(kind, item) / "sub").mkdir()
        for number in range(3):
            (node.item(kind, item) / "sub" / f"{number}.bin").write_bytes(random_bytes(number * 500, number))
    (node.item("checkpoint", item) / "c_1.pt").write_bytes(random_bytes(700_000))
    script = node.item("code", item) / "run.sh"
    script.write_text("exit 0\n")
    script.chmod(script.stat().st_mode | (script.stat().st_mode & 0o444) >> 2)


def modes(root: Path) -> dict[str, int]:
    """Permission bits of everything below the kinds' folders, these included."""
    return {
        str(path.relative_to(root)): path.stat().st_mode & 0o7777
        for path in root.rglob("*")
        if not path.relative_to(root).parts[0].startswith(".") and not path.name.startswith(".rla-tmp")
    }


def same_modes(node: Node, there: Path) -> bool:
    here, found = modes(node.root), modes(there)
    return all(found[path] == here[path] for path in found) and bool(found)


def verify(node: Node, *, fix: bool = False) -> dict[str, str]:
    config = load_config(node.config)
    _, faults = verify_database(node.state, config, node.root, fix=fix)
    return {fault.path: fault.what for fault in faults}


@pytest.mark.slow
def test_all_arrives_with_its_mode(node: Node, there: Path) -> None:
    node.start()
    wait_same(node, there, 30)
    wait_until(lambda: same_modes(node, there))
    found = modes(there)
    assert found[LOG] == 0o700
    assert found[f"{LOG}/progress.csv"] == 0o600
    assert found[f"log/{ITEM.replace('000001', '000002')}/progress.csv"] == 0o664
    assert found[f"code/{ITEM}/run.sh"] == 0o700
    assert verify(node) == {}


@pytest.mark.slow
def test_what_changes_here_changes_there(node: Node, there: Path) -> None:
    """Of files that rest and that grow, of large ones without their bytes, of folders; both ways."""
    node.start()
    wait_same(node, there, 30)
    lab = ITEM.replace("000001", "000002")
    (node.root / "log" / lab / "progress.csv").chmod(0o600)
    (node.root / "checkpoint" / lab / "c_1.pt").chmod(0o640)
    (node.root / LOG / "run.json").chmod(0o644)
    (node.root / "results" / lab / "sub").chmod(0o700)
    (node.root / "results" / f"other/{ITEM}").chmod(0o750)
    wait_until(lambda: same_modes(node, there), 90)
    before = written(node)
    with (node.root / "log" / lab / "progress.csv").open("a") as file:
        file.write("3,4\n")
    wait_same(node, there, 30)
    assert same_modes(node, there)
    assert written(node) - before < 500_000
    assert node.stop() == 0


def test_rows_are_not_appended_to_a_copy_that_is_still_open(node: Node, there: Path) -> None:
    """The mode goes before the rows."""
    log = node.root / "log" / ITEM.replace("000001", "000002") / "progress.csv"
    node.start()
    wait_same(node, there, 30)
    wait_clean(node)  # a file is there a moment before it is in the ledger
    node.stop()
    log.chmod(0o600)
    with log.open("a") as file:
        file.write("secret,row\n")
    session = FolderSession(str(there))
    target = there / log.relative_to(node.root)
    seen = []
    original = session._append

    def append(*arguments: Any) -> None:
        seen.append(target.stat().st_mode & 0o777)
        original(*arguments)

    session._append = append  # type: ignore[method-assign,assignment]
    _send_due(node, session)
    assert target.read_text().endswith("secret,row\n")
    assert set(seen) == {0o600}


def _send_due(node: Node, session: FolderSession) -> None:
    """What the worker would do for progress.csv, in this process."""
    from rla_agent.replicate.ledger_rows import Due
    from rla_agent.replicate.worker.file_decision import Append
    from rla_agent.replicate.worker.send import Sender
    from rla_agent.replicate.worker.send_job import Result, SendJob, Sent
    from rla_agent.replicate.worker.source_file import local_state

    name = ITEM.replace("000001", "000002")
    path = f"log/{name}/progress.csv".encode()
    ledger = Ledger(ledger_path(node.state))
    target = target_config.target(load_config(node.config), registry.folder(node.state)).name
    number = ledger.database(os.fsencode(node.root), target)
    (found,) = [file for file in ledger.item_files(number, name) if file.path == path]
    ledger.close()
    assert found.record is not None
    local = local_state(os.lstat(node.root / os.fsdecode(path)))
    item = f"log/{name}".encode()
    due = Due(found.key, path, "log", item, True, 1, 0, 0, 0.0, (), found.record)
    job = SendJob(due, Append(found.record.acked, local.size), item + b"/.rla-tmp-x", local=local)
    results: list[Result] = []
    root = os.open(node.root, os.O_RDONLY)
    Sender(session, root, lambda *_: None).send_all([job], results)
    os.close(root)
    assert isinstance(results[0], Sent), results


def _open_up(there: Path) -> None:
    """Make the copy as open as it can be."""
    for path in there.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.slow
def test_a_copy_that_somebody_opened_is_told_of_and_repaired(node: Node, there: Path) -> None:
    node.start()
    wait_same(node, there, 30)
    wait_until(lambda: same_modes(node, there))
    wait_clean(node)
    (there / LOG / "progress.csv").chmod(0o644)
    (there / "results" / ITEM).chmod(0o755)
    (there / "checkpoint" / ITEM / "c_1.pt").chmod(0o400)  # less open is nobody's fault
    assert verify(node, fix=True) == {f"{LOG}/progress.csv": "mode", f"results/{ITEM}": "mode"}
    rows = there / LOG / "progress.csv"  # not compared while it is being put right
    wait_until(lambda: verify(node) == {} and rows.stat().st_mode & 0o777 == 0o600, 90)
    assert (there / LOG / "progress.csv").read_bytes() == (node.root / LOG / "progress.csv").read_bytes()


@pytest.mark.slow
def test_groups_of_the_master_stay(node: Node, there: Path) -> None:
    """A lab's folder is setgid there, and what is made in it is, too."""
    there.chmod(0o2775)
    node.start()
    wait_same(node, there, 30)
    lab = there / "log" / ITEM.replace("000001", "000002")
    wait_until(lambda: lab.stat().st_mode & 0o7777 == 0o2775)
    assert (there / LOG).stat().st_mode & 0o7777 == 0o2700


@pytest.mark.slow
def test_a_folder_above_runs_takes_nothing_from_those_of_other_machines(node: Node, there: Path) -> None:
    """It is never opened up, for another machine's runs lie in it."""
    (there / "results").mkdir(mode=0o700)
    (there / "code").mkdir(mode=0o755)
    (node.root / "results").chmod(0o755)
    (node.root / "code").chmod(0o750)
    node.start()
    wait_same(node, there, 30)
    wait_until(lambda: (there / "code").stat().st_mode & 0o777 == 0o750)
    assert (there / "results").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_read_only_log_goes_on(node: Node, there: Path) -> None:
    log = node.root / LOG / "progress.csv"
    log.chmod(0o400)
    node.start()
    wait_same(node, there, 30)
    assert (there / LOG / "progress.csv").stat().st_mode & 0o777 == 0o400
    log.chmod(0o600)
    with log.open("a") as file:
        file.write("3,4\n")
    log.chmod(0o400)
    wait_same(node, there, 30)
    assert (there / LOG / "progress.csv").stat().st_mode & 0o777 == 0o400


def test_a_push_by_hand_sends_modes_too(node: Node, there: Path) -> None:
    session = FolderSession(str(there))
    assert push(session, str(node.root), ItemSelection()).failed == []
    assert same_modes(node, there)
    _open_up(there)
    again = push(session, str(node.root), ItemSelection())
    assert (again.files, again.failed) == (0, [])
    private = {path: mode for path, mode in modes(there).items() if ITEM in path and "other" not in path}
    assert {path: modes(node.root)[path] for path in private} == private


def test_a_kind_that_lies_elsewhere_has_the_mode_of_that_folder(node: Node, there: Path) -> None:
    """Not that of the link, which is 0777 always."""
    disk = node.root.parent / "disk"
    (node.root / "log").rename(disk)
    (node.root / "log").symlink_to(disk)
    disk.chmod(0o700)
    node.start()
    wait_until((there / LOG / "progress.csv").exists)
    assert (there / "log").stat().st_mode & 0o777 == 0o700
    node.stop()
    (there / "log").chmod(0o755)
    assert verify(node)["log"] == "mode"
