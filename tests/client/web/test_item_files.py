"""Hostile files and paths of a run."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.run_files import OneRun


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "../../../../../../secret",
        "/etc/passwd",
        "a/../../x",
        "",
        ".",
        "..",
        "a//b",
        ".resume/x",
        "a/.hidden",
        "x\0y",
        "\n",
    ],
)
@pytest.mark.parametrize("kind", ["results", "log"])
def test_no_way_out_of_the_item(one: OneRun, kind: str, path: str) -> None:
    (one.root / "secret").write_text("s")
    assert one.get(path, kind).status in {400, 404}
    assert one.server.post("text", {"run": one.path, "kind": kind, "path": path}).status in {400, 404}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["", "..", "log/..", ".rla", "archive_tester", "arc", "/etc", "results/../log", ".rla/trash"]
)
def test_no_other_folder_than_the_kinds(one: OneRun, kind: str) -> None:
    assert one.get("x.txt", kind).status == 400
    for name in ("files", "text", "search"):
        one.refused(name, kind=kind, path="x.txt", text="x")


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", ["", "0", "0/..", "1/task/x", "0/../../etc", "-1/task", "0/task/2026/11/21/nothing"]
)
def test_no_other_run(one: OneRun, run: str) -> None:
    assert one.server.post("media", {"run": run}).status == 400
    asked = urlencode({"run": run, "kind": "log", "path": "log.txt"})
    assert one.server.get(f"/api/file?{asked}").status == 400


def test_links_pipes_and_sockets_are_no_files(one: OneRun, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("s3cret")
    folder = one.folder("results")
    (folder / "link.txt").symlink_to(secret / "key.txt")
    (folder / "inside").symlink_to(secret)
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder)
        listener.bind("sock.txt")
        os.chdir(here)
        for name in ("link.txt", "inside/key.txt", "pipe.txt", "sock.txt", "inside"):
            answer = one.get(name)
            assert answer.status == 400, name
            assert b"s3cret" not in answer.body
            assert b"/proc/" not in answer.body
            assert one.server.post("text", {"run": one.path, "kind": "results", "path": name}).status == 400
        found = one.ask("files", kind="results")
    assert [name for name, _, _ in found["files"]] == ["5-figure.png"]
    assert found["passed"] == 4
    assert one.ask("media")["passed"] == 4


def test_an_item_that_is_a_link_is_not_followed(one: OneRun, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    one.folder("results").rename(elsewhere)
    one.folder("results").symlink_to(elsewhere)
    assert one.get("5-figure.png").status == 400
    assert one.ask("media")["count"] == 0


def test_names_that_no_address_can_hold_are_left_out(one: OneRun) -> None:
    folder = os.fsencode(one.folder("results"))
    for name in (b"\xff\xfe.png", b"new\nline.png", b"esc\x1b[31m.png"):
        with open(folder + b"/" + name, "wb"):
            pass
    assert one.ask("media")["passed"] == 3
    (one.folder("results") / "1-<img src=x onerror=alert(1)>.png").write_bytes(b"1")
    assert one.ask("media")["groups"][0]["name"] == "<img src=x onerror=alert(1)>.png"


def test_a_file_that_vanishes_is_said_so(one: OneRun) -> None:
    assert one.get("9-gone.png").status == 404
    assert "not there any more" in one.refused("text", 404, kind="log", path="gone.txt")
