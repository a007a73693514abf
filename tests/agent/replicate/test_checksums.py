"""`SHA256SUMS` of an ended run."""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node, Sshd, same_trees
from support.waiting import wait_until

from rla_agent.replicate.checksums import write_checksums
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.worker.source_file import SourceFile
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.process.descriptors import closing_fd


def test_sums_are_not_made_of_what_was_written_a_moment_ago(tmp_path: Path) -> None:
    """A look at the logs has seen the run's end, and not yet what came before it in another folder."""
    path = tmp_path / "results" / ITEM / "picture"
    path.parent.mkdir(parents=True)
    (tmp_path / "log" / ITEM).mkdir(parents=True)
    path.write_bytes(b"first")
    ledger = Ledger(tmp_path / "ledger.db")
    number = ledger.database(os.fsencode(tmp_path), "folder")
    below = os.fsencode(path.parent.relative_to(tmp_path))
    key = Key(ledger.folder(number, below, "results", below), b"picture")

    def send() -> None:
        ledger.mark(key, number, 1, 1, 0.0)
        with closing(SourceFile(root, below + b"/picture")) as source:
            source.skip_to(5)
            ledger.sent(key, source.record(0, 5, 1), 0.0)

    with closing_fd(open_root(os.fsencode(tmp_path))) as root:
        send()
        path.write_bytes(b"newer")
        assert write_checksums(ledger, number, os.fsencode(tmp_path), root, ITEM) is None
        assert [row.waiting for row in ledger.item_files(number, ITEM)] == [True]
        send()
        os.utime(path)  # another time alone is no other version
        sums = write_checksums(ledger, number, os.fsencode(tmp_path), root, ITEM)
        assert sums == os.fsencode(f"log/{ITEM}/SHA256SUMS")
        assert hashlib.sha256(b"newer").hexdigest() in (tmp_path / os.fsdecode(sums)).read_text()
    ledger.close()


@pytest.mark.slow
@pytest.mark.further
def test_sums_follow_a_file_that_changes_after_the_end(node: Node, master: Sshd) -> None:
    """A tag or a note of an ended run: `sha256sum -c` on the master would call that damage."""
    log = node.run(state="finished")
    (log / "note.json").write_text('{"note": "first"}')
    node.start()
    there = master.root / "log" / ITEM
    command = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]

    def good() -> bool:
        return (
            same_trees(node, master.root) and not subprocess.run(command, cwd=there, check=False).returncode
        )

    wait_until((there / "SHA256SUMS").exists, 60, "the sums")
    wait_until(good, 20)
    (log / "note.json").write_text('{"note": "second"}')
    wait_until(lambda: "second" in (there / "note.json").read_text(), 60, "the note")
    wait_until(good, 20, "sums of the new note")
