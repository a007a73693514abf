"""Taking in spools without a serving agent: the own one, a copy, one whose data root has moved."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import zmq
from support.waiting import wait_until

from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.agent_lock import AgentLock
from rla_agent.service.drain import PATIENCE_S
from rla_agent.service.flush_client import wait_durable
from rla_agent.service.lock_holder import DRAIN_HOLDER
from rla_agent.service.other_spools import left_behind
from rla_agent.service.root_map import RootMap, parse_roots
from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.contract.agent.places import Places, machine_key
from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import (
    Frame,
    FrameKind,
    MessageKind,
    decode_message,
    encode_frame,
    encode_message,
    frame_at,
    pack,
)
from rla_client.contract.spool.segments import segment_path

ROWS = 300
NO_ID = "-e3b0c442"  # the hash of nothing
TRAINING = """
import signal, sys
from rla_client import exp_manager, logger
root, rows, wait = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "wait"
exp_manager.set_hyper_param(lr=0.1)
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=root, code_root=root)
exp_manager.log_files_gen()
for number in range(rows):
    logger.record_tabular("number", number)
    logger.dump_tabular()
print(exp_manager.log_dir, flush=True)
if wait:
    signal.pause()
"""


def train(root: Path, *, wait: bool = False) -> tuple[subprocess.Popen[str], Path]:
    root.mkdir(exist_ok=True)
    arguments = [sys.executable, "-c", TRAINING, str(root), str(ROWS), "wait" if wait else "end"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    log = next(line.strip() for line in process.stdout if line.startswith("/"))
    if not wait:
        process.communicate(timeout=60)
    return process, Path(log)


def stored(log: Path) -> list[int]:
    with (log / "progress.csv").open() as file:
        return [int(row["number"]) for row in csv.DictReader(file)]


def drain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rla_agent", "drain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def spooled(places: Places, tmp_path: Path) -> Path:
    """Log folder of an ended run that is only in the spool: the agent was stopped on purpose."""
    places.stopped_marker.touch()
    _, log = train(tmp_path / "data")
    assert not (log / "progress.csv").exists()
    return log


def test_own_spool_is_taken_in_once(spooled: Path, places: Places) -> None:
    done = drain()
    assert done.returncode == 0, done.stderr
    assert "1 streams stored" in done.stdout
    assert stored(spooled) == list(range(ROWS))
    assert list(places.spool.iterdir()) == []
    before = (spooled / "progress.csv").stat().st_mtime_ns
    assert "0 streams stored" in drain().stdout
    assert (spooled / "progress.csv").stat().st_mtime_ns == before
    assert '"state": "finished"' in (spooled / "run.json").read_text()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_what_somebody_else_put_into_the_state_folder_is_refused(spooled: Path, places: Places) -> None:
    places.database.write_bytes(b"")
    os.chown(places.database, 12345, 12345)
    for arguments in ((), ("--spool", str(places.spool))):
        done = drain(*arguments)
        assert done.returncode != 0
        assert "belongs to uid 12345" in done.stderr
    assert not (spooled / "progress.csv").exists()
    places.database.unlink()
    assert drain().returncode == 0
    assert stored(spooled) == list(range(ROWS))


def test_a_damaged_database_is_put_aside_and_told_of(spooled: Path, places: Places) -> None:
    places.database.write_bytes(b"this is no database " * 500)
    done = drain()
    assert done.returncode == 0, done.stderr
    assert f"agent.db was damaged and is now {places.database}.broken" in done.stdout
    assert stored(spooled) == list(range(ROWS))
    assert "agent.db was damaged" not in drain().stdout


@pytest.mark.slow
def test_a_living_writer_keeps_its_stream(places: Places, tmp_path: Path) -> None:
    places.stopped_marker.touch()
    process, log = train(tmp_path / "data", wait=True)
    try:
        done = drain()
        assert (done.returncode, "1 streams are still being written" in done.stdout) == (0, True), done
        assert stored(log) == list(range(ROWS))
        assert len(list(places.spool.iterdir())) == 1
    finally:
        process.kill()
        process.communicate()
    assert drain().returncode == 0
    assert stored(log) == list(range(ROWS)), "not a second time"
    assert list(places.spool.iterdir()) == []


@pytest.mark.slow
def test_beside_a_serving_agent_it_waits(agent: Any, tmp_path: Path) -> None:
    process, log = train(tmp_path / "data", wait=True)
    try:
        done = drain()
        assert done.returncode == 0, done.stderr
        assert "an agent serves this spool" in done.stdout
        assert stored(log) == list(range(ROWS))
        named = drain("--spool", str(agent.places.spool))
        assert (named.returncode, named.stdout) == (0, done.stdout)
        for number, target in enumerate((agent.places.spool, agent.places.state)):
            link = tmp_path / f"link-{number}"
            link.symlink_to(target)
            linked = drain("--spool", str(link))
            assert (linked.returncode, linked.stdout) == (0, done.stdout), linked
        refused = drain("--data-root", f"/nowhere={tmp_path}")
        assert (refused.returncode, "rla-agent stop" in refused.stderr) == (1, True)
    finally:
        process.kill()
        process.communicate()


def test_a_copy_on_another_machine(spooled: Path, places: Places, tmp_path: Path) -> None:
    """Only the spool was saved; the data root lies elsewhere and is empty."""
    copy, new = tmp_path / "saved", tmp_path / "new"
    shutil.copytree(places.spool, copy)
    shutil.rmtree(tmp_path / "data")
    done = drain("--spool", str(copy))
    assert done.returncode == 1
    assert f"--data-root {tmp_path / 'data'}=DIR" in done.stdout
    assert any(entry.name != ".rla-drain" for entry in copy.iterdir()), "nothing is lost by that"
    new.mkdir()
    done = drain("--spool", str(copy), "--data-root", f"{tmp_path / 'data'}={new}")
    assert done.returncode == 0, done.stdout + done.stderr
    moved = new / spooled.relative_to(tmp_path / "data")
    assert stored(moved) == list(range(ROWS))
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def half_taken_in(agent: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Log folder of a killed run whose rows are stored, and a copy of the spool of its killed agent."""
    process, log = train(tmp_path / "data", wait=True)
    wait_until(lambda: (log / "progress.csv").exists() and len(stored(log)) == ROWS)
    agent.kill()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    copy = tmp_path / "saved"
    shutil.copytree(agent.places.spool, copy)
    return log, copy


def test_a_copy_that_was_half_taken_in(agent: Any, tmp_path: Path) -> None:
    """The agent had written rows, machine and agent.db are gone: base files keep it exactly once."""
    log, copy = half_taken_in(agent, tmp_path)
    with (log / "progress.csv").open("ab") as file:
        file.write(b"7,7")  # a torn row that no position covers
    os.rename(tmp_path / "data", tmp_path / "data2")
    done = drain("--spool", str(copy), "--data-root", f"{tmp_path / 'data'}={tmp_path / 'data2'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert stored(tmp_path / "data2" / log.relative_to(tmp_path / "data")) == list(range(ROWS))


@pytest.mark.slow
def test_the_root_was_copied_too(spooled: Path, places: Places, tmp_path: Path) -> None:
    """Same path, another inode: on purpose parked for a serving agent, taken in by a drain of a copy."""
    copy = tmp_path / "saved"
    shutil.copytree(places.spool, copy)
    shutil.copytree(tmp_path / "data", tmp_path / "data2")
    shutil.rmtree(tmp_path / "data")
    os.rename(tmp_path / "data2", tmp_path / "data")
    own = drain()
    assert (own.returncode, "another folder here" in own.stdout) == (1, True), own
    assert drain("--spool", str(copy)).returncode == 0
    assert stored(spooled) == list(range(ROWS))


def evil(folder: Path, **changed: Any) -> None:
    """Change what the only stream of a spool says of itself."""
    (stream,) = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    opening, _ = read_opening(stream)
    segment = segment_path(stream, 1)
    data = segment.read_bytes()
    found = frame_at(data, 0)
    assert isinstance(found, Frame)
    segment.write_bytes(opening._replace(**changed).frame(1, 0, 0) + data[found.end :])


@pytest.mark.parametrize("evil_part", ["folder", "name", "plain", "blobs", "hidden"])
def test_a_copied_spool_says_not_itself_what_is_overwritten(
    spooled: Path, places: Places, tmp_path: Path, evil_part: str
) -> None:
    """Its opening frame names folders and files; only those of a run are written."""
    copy, home = tmp_path / "saved", tmp_path / "home"
    shutil.copytree(places.spool, copy)
    (stream,) = copy.iterdir()
    own = read_opening(stream)[0]
    precious = home / ".ssh" / "authorized_keys"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    before = (spooled / "warn.txt").read_bytes() if (spooled / "warn.txt").exists() else None
    if evil_part == "folder":
        evil(copy, root=str(home), folders={**own.folders, "log": ".ssh"})
    elif evil_part == "hidden":
        evil(copy, root=str(home), table=".ssh", folders={"log": f".ssh/{own.index}"}, index=own.index)
    elif evil_part == "name":
        evil(copy, names={**own.names, "csv": "parameter.yaml"})
    elif evil_part == "plain":
        evil(copy, root=str(precious.parent), table="", index="", folders={"log": "."},
             names={**own.names, "csv": "authorized_keys"})  # fmt: skip
    else:
        shutil.rmtree(stream / "blobs")
        (stream / "blobs").symlink_to(precious.parent)
    done = drain("--spool", str(copy))
    assert (done.returncode, f"left: {stream.name}" in done.stdout) == (1, True), done
    assert precious.read_text() == "mine"
    assert os.listdir(precious.parent) == ["authorized_keys"]
    assert before == ((spooled / "warn.txt").read_bytes() if (spooled / "warn.txt").exists() else None)
    assert not (spooled / "progress.csv").exists()


def test_a_base_names_no_file_but_its_outputs(agent: Any, tmp_path: Path) -> None:
    """Base files say where the outputs stood; this one says that the CSV is run.json."""
    log, copy = half_taken_in(agent, tmp_path)
    (stream,) = copy.iterdir()
    for base in stream.glob("*.base"):
        content = json.loads(base.read_text())
        content["outputs"]["csv"]["file"] = "run.json"
        base.write_text(json.dumps(content))
    assert list(stream.glob("*.base"))
    done = drain("--spool", str(copy))
    assert (done.returncode, "makes no sense" in done.stdout) == (1, True), done
    assert "state" in json.loads((log / "run.json").read_bytes())


def test_a_second_capture_of_the_console_is_no_other_file(
    spooled: Path, places: Places, tmp_path: Path
) -> None:
    copy = tmp_path / "saved"
    shutil.copytree(places.spool, copy)
    own = read_opening(next(copy.iterdir()))[0]
    evil(copy, names={**own.names, "console": "console.2.txt"})
    assert drain("--spool", str(copy)).returncode == 0
    assert stored(spooled) == list(range(ROWS))


@pytest.mark.parametrize("name", [".rla-foreign", ".rla-pruned/note.json"])
def test_a_copied_spool_does_not_take_its_mark_off(
    spooled: Path, places: Places, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "saved"
    shutil.copytree(places.spool, copy)
    (stream,) = copy.iterdir()
    with segment_path(stream, 1).open("ab") as segment:
        segment.write(encode_frame(FrameKind.FILE, pack(["checkpoint", name, b"evil"])))
        segment.write(encode_frame(FrameKind.FILE, pack(["checkpoint", "params.pkl", b"evil"])))
    assert drain("--spool", str(copy)).returncode == 0
    folder = tmp_path / "data" / "checkpoint" / spooled.relative_to(tmp_path / "data" / "log")
    assert sorted(os.listdir(folder)) == [".rla-foreign", "params.pkl"]
    assert pickle_problem(folder / "params.pkl") == "it came from another machine"


@pytest.mark.usefixtures("spooled")
def test_two_drains_do_not_meet(places: Places) -> None:
    lock = AgentLock(places, DRAIN_HOLDER)
    done = drain()
    lock.release()
    assert (done.returncode, str(os.getpid()) in done.stderr) == (3, True), done


def test_damage_is_left_and_reported(spooled: Path, places: Places) -> None:
    damaged = places.spool / "0123456789abcdef-1-00000000"
    damaged.mkdir()
    (damaged / "000001.seg").write_bytes(b"\0" * 100)
    done = drain()
    assert done.returncode == 1
    assert f"left: {damaged.name}: " in done.stdout
    assert stored(spooled) == list(range(ROWS)), "the others are taken in"
    assert damaged.exists()


def test_roots_map_by_the_longest_prefix(tmp_path: Path) -> None:
    roots = RootMap({"/a": "/x", "/a/b": "/y"})
    assert [roots.place(path) for path in ("/a", "/a/b/c", "/a/bc", "/d")] == ["/x", "/y/c", "/x/bc", "/d"]
    assert parse_roots([f"/a/={tmp_path}"]).roots == {"/a": str(tmp_path)}
    for wrong in ("/a", f"a={tmp_path}", "/a=/no/such/folder"):
        with pytest.raises(ArgumentError, match="OLD=NEW"):
            parse_roots([wrong])


@pytest.mark.usefixtures("places")
def test_an_empty_spool_on_a_file_system_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "other" / "lost+found").mkdir(parents=True)
    assert drain("--spool", str(tmp_path / "other")).returncode == 0


@pytest.mark.usefixtures("places")
def test_no_spool_there(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    for folder in (tmp_path / "missing", other):
        done = drain("--spool", str(folder))
        assert (done.returncode, "not a folder with a spool" in done.stderr) == (1, True)
    assert [path.name for path in other.iterdir()] == ["data"]


FIGURES = """
import os, pickle, sys
from matplotlib.figure import Figure
from rla_client import exp_manager, logger
from rla_client.media.figure_pickle import dump_figure
class Evil:
    def __reduce__(self):
        return os.system, (f"touch {marker}",)
root, marker = sys.argv[1:3]
sys.executable = marker + "-python"
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=root, code_root=root)
exp_manager.log_files_gen()
outbox = exp_manager.run.outbox
good = dump_figure(Figure(), {})
for number, blob in enumerate([pickle.dumps(Evil()), good, pickle.dumps({"figure": Evil()})]):
    name = f"figure-{number}"
    (outbox.blobs_folder / name).write_bytes(blob)
    outbox.job("figure", dict(name=f"{number}.png", format="png", cover=False, blob=name))
logger.record_tabular("number", 0)
logger.dump_tabular()
print(exp_manager.results_dir, exp_manager.log_dir, sep="\\n", flush=True)
"""


@pytest.mark.slow
def test_the_figures_of_a_copied_spool_are_drawn_for_who_trusts_it(places: Places, tmp_path: Path) -> None:
    """Else they stay in it, and neither their pickles run nor, ever, the interpreter that the copy names."""
    places.stopped_marker.touch()
    root, marker = tmp_path / "data", tmp_path / "marker"
    root.mkdir()
    spy = Path(f"{marker}-python")
    spy.write_text(f"#!/bin/sh\ntouch {marker}-started\n")
    spy.chmod(0o755)
    made = subprocess.run(
        [sys.executable, "-c", FIGURES, str(root), str(marker)], capture_output=True, text=True, check=True
    )
    results, log = map(Path, made.stdout.splitlines()[-2:])
    copy = tmp_path / "copy"
    shutil.copytree(places.spool, copy)

    for _ in range(2):
        began = time.monotonic()
        done = drain("--spool", str(copy))
        assert (done.returncode, "3 figure(s) stay in this spool, not drawn. " in done.stdout) == (1, True), (
            done
        )
        assert time.monotonic() - began < PATIENCE_S / 2, "nothing is waited for"
        assert (stored(log), list(results.glob("[!.]*"))) == ([0], [])
        assert len(list(copy.glob("*/blobs/figure-*"))) == 3
        assert not marker.exists()

    done = drain("--spool", str(copy), "--trust")
    assert (done.returncode, [path.name for path in results.glob("[!.]*")]) == (0, ["1.png"]), done
    assert marker.exists(), "or the spool had nothing evil"
    assert not Path(f"{marker}-started").exists()
    assert not list(copy.glob("[!.]*"))


@pytest.mark.skipif(machine_key().endswith(NO_ID), reason="this machine has no /etc/machine-id")
def test_rows_left_under_another_host_name(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both folders are there: status and doctor name the command, which takes them in as this machine's."""
    states = tmp_path / "home" / "rla-agent"
    earlier = Places(states / f"former-{machine_key()[-8:]}", places.runtime)
    earlier.create()
    earlier.stopped_marker.touch()
    monkeypatch.setenv("RLA_STATE_DIR", str(earlier.state))
    _, log = train(tmp_path / "data")
    monkeypatch.delenv("RLA_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    own = Places(states / machine_key(), places.runtime)
    own.create()
    (word,) = left_behind(own)
    assert word["fix"] == f"rla-agent drain --spool {earlier.state}"
    for command in ("status", "doctor"):
        said = subprocess.run(
            [sys.executable, "-m", "rla_agent", command, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert word["fix"] in said.stdout, said
    done = drain("--spool", str(earlier.state))
    assert (done.returncode, stored(log)) == (0, list(range(ROWS))), done
    assert left_behind(own) == []


def test_a_serving_agent_answers_for_more_streams_than_a_socket_holds(places: Places) -> None:
    names = {f"stream-{number}" for number in range(1500)}
    for name in names:
        (places.spool / name).mkdir(parents=True)
        segment_path(places.spool / name, 1).touch()
    left: list[set[str]] = []
    lock = AgentLock(places)
    waiting = threading.Thread(
        target=lambda: left.append(wait_durable(places, {*names, "gone"}, time.monotonic() + 60))
    )
    waiting.start()  # before anybody listens
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        router.bind(f"ipc://{places.data_socket}")
        while waiting.is_alive():
            if router.poll(50):
                peer, message = router.recv_multipart()
                name = decode_message(message)[1]["s"]
                answer = {"s": name, "done": name != "stream-7"}
                router.send_multipart([peer, encode_message(MessageKind.FLUSHED, answer)])
    waiting.join()
    lock.release()
    assert left == [{"stream-7"}]
