"""Files of a run: pictures by step, texts piece by piece, what is sent to a browser; and hostile ones."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from support.waiting import TIME_FACTOR

from rla_client.web.file_text import CHUNK_BYTES, readable
from rla_client.web.item_files import MAX_LISTED
from rla_client.web.media import MAX_STEPS

if TYPE_CHECKING:
    from support.page_lab import Answer, PageServer
    from support.written_runs import MakeRun

TABLE = "task"
KINDS = ("log", "code", "checkpoint", "hyperparameter", "results")


@dataclass
class OneRun:
    """A run, and a page that shows it."""

    root: Path
    index: str
    server: PageServer

    @property
    def path(self) -> str:
        return f"0/{TABLE}/{self.index}"

    def folder(self, kind: str) -> Path:
        return self.root / kind / TABLE / self.index

    def ask(self, name: str, **asked: Any) -> Any:
        return self.server.ask(name, {"run": self.path, **asked})

    def refused(self, name: str, status: int = 400, **asked: Any) -> str:
        return self.server.refused(name, {"run": self.path, **asked}, status)

    def get(
        self, path: str, kind: str = "results", headers: dict[str, str] | None = None, **more: str
    ) -> Answer:
        asked = urlencode({"run": self.path, "kind": kind, "path": path, **more}, errors="surrogateescape")
        return self.server.get(f"/api/file?{asked}", headers)


@pytest.fixture
def one(root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]) -> OneRun:
    index = make_run(kinds=KINDS)
    return OneRun(root, index, page_server(root))


def test_media_and_other_files(one: OneRun) -> None:
    folder = one.folder("results")
    (folder / "plots").mkdir()
    for step in (0, 20, 3):
        (folder / "plots" / f"{step}-return.png").write_bytes(b"x")
    (folder / "table.csv").write_text("a\n")
    for step in (10, 9):
        (folder / f"{step}-episodes.csv").write_text("a\n")
    (folder / ".hidden.png").write_bytes(b"x")
    found = one.ask("media")
    assert [(group["name"], group["kind"]) for group in found["groups"]] == [
        ("figure.png", "image"),
        ("plots/return.png", "image"),
    ]
    assert found["groups"][1]["files"] == [[s, f"plots/{s}-return.png"] for s in (0, 3, 20)]
    assert [name for name, _, _ in found["others"]] == ["9-episodes.csv", "10-episodes.csv", "table.csv"]


@pytest.mark.slow
def test_a_hundred_thousand_files_are_listed_in_bounds(one: OneRun) -> None:
    folder = one.folder("results")
    for number in range(100_000):
        os.mknod(folder / f"{number}-many.png")
    begun = time.monotonic()
    answer = one.server.post("media", {"run": one.path})
    assert time.monotonic() - begun < 20 * TIME_FACTOR
    many = next(group for group in answer.json["groups"] if group["name"] == "many.png")
    assert many["count"] == 100_000
    assert len(many["files"]) == MAX_STEPS
    assert many["files"][-1][0] == 99_999
    assert len(answer.body) < 1 << 20
    listed = one.ask("files", kind="results")
    assert (len(listed["files"]), listed["count"]) == (MAX_LISTED, 100_001)


def test_a_picture_is_sent_as_one_and_never_runs(one: OneRun) -> None:
    (one.folder("results") / "1-x.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>")
    for name, kind in (("5-figure.png", "image/png"), ("1-x.svg", "image/svg+xml")):
        answer = one.get(name)
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["page.html", "page.xhtml", "x.js", "x.pdf", "x.pt", "noending", "x.xml", "x.svgz"]
)
def test_what_a_browser_might_run_is_to_be_saved(one: OneRun, name: str) -> None:
    (one.folder("results") / name).write_text("<script>alert(1)</script>")
    answer = one.get(name)
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] in {"application/octet-stream", "application/pdf"}


def test_texts_are_plain(one: OneRun) -> None:
    (one.folder("results") / "x.txt").write_text("<script>")
    assert one.get("x.txt").headers["content-type"] == "text/plain; charset=utf-8"


def test_a_name_cannot_break_a_header(one: OneRun) -> None:
    name = 'q"uo;te é.bin'
    (one.folder("results") / name).write_bytes(b"1")
    assert (
        one.get(name).headers["content-disposition"]
        == "attachment; filename*=UTF-8''q%22uo%3Bte%20%C3%A9.bin"
    )


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=0-", 206, b"0123456789"),  # else Safari plays nothing
        ("bytes=10-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=5-2", 200, b"0123456789"),  # no valid range: as if there were none
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
    ],
)
def test_ranges_of_a_film(one: OneRun, asked: str, status: int, body: bytes) -> None:
    (one.folder("results") / "1-film.mp4").write_bytes(b"0123456789")
    answer = one.get("1-film.mp4", headers={"Range": asked})
    assert (answer.status, answer.body) == (status, body)
    if status == 206:
        start = b"0123456789".find(body)
        assert answer.headers["content-range"] == f"bytes {start}-{start + len(body) - 1}/10"


def test_a_range_of_a_film_that_changed_is_the_new_film(one: OneRun) -> None:
    film = one.folder("results") / "1-film.mp4"
    film.write_bytes(b"0123456789")
    asked = {"Range": "bytes=4-", "If-Range": one.get("1-film.mp4").headers["etag"]}
    assert one.get("1-film.mp4", headers=asked).status == 206
    film.write_bytes(b"another one")
    answer = one.get("1-film.mp4", headers=asked)
    assert (answer.status, answer.body) == (200, b"another one")


def test_a_film_that_the_browser_has_is_not_sent_again(one: OneRun) -> None:
    film = one.folder("results") / "1-film.mp4"
    film.write_bytes(b"1")
    tag = one.get("1-film.mp4").headers["etag"]
    assert one.get("1-film.mp4", headers={"If-None-Match": tag}).status == 304
    film.write_bytes(b"22")
    assert one.get("1-film.mp4", headers={"If-None-Match": tag}).body == b"22"


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


def test_a_log_from_its_end_to_its_beginning(one: OneRun) -> None:
    lines = [f"line {number} {'x' * 50}\n" for number in range(10_000)]
    (one.folder("log") / "log.txt").write_text("".join(lines))
    found = one.ask("text", kind="log", path="log.txt")
    parts = [found["text"]]
    assert found["end"] == found["size"]
    while found["start"]:
        found = one.ask("text", kind="log", path="log.txt", before=found["start"])
        assert found["text"].startswith("line ")
        assert len(found["text"]) <= CHUNK_BYTES
        parts.insert(0, found["text"])
    assert "".join(parts) == "".join(lines)


def test_a_log_is_followed_and_begins_anew_when_it_was_cut(one: OneRun) -> None:
    log = one.folder("log") / "log.txt"
    log.write_text("one\ntw")
    found = one.ask("text", kind="log", path="log.txt")
    with log.open("a") as file:
        file.write("o\nthrée\n")
    after = one.ask("text", kind="log", path="log.txt", after=found["end"])
    assert found["text"] + after["text"] == "one\ntwo\nthrée\n"
    log.write_text("new\n")
    again = one.ask("text", kind="log", path="log.txt", after=after["end"])
    assert (again["restarted"], again["text"]) == (True, "new\n")


def test_a_log_of_five_gigabytes_and_a_line_of_100_megabytes(one: OneRun) -> None:
    log = one.folder("log") / "log.txt"
    with log.open("wb") as file:
        file.write(b"begin\n" + b"y" * 1000)
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b" needle end")
    begun = time.monotonic()
    found = one.ask("text", kind="log", path="log.txt")
    assert len(found["text"]) <= CHUNK_BYTES
    assert found["text"].endswith(" needle end")
    middle = one.ask("text", kind="log", path="log.txt", before=found["start"])
    assert middle["end"] == found["start"]
    assert middle["start"] < middle["end"]
    hit = one.ask("search", kind="log", path="log.txt", text="NEEDLE")
    assert [line[-11:] for _, line in hit["hits"]] == [" needle end"]
    assert len(hit["hits"][0][1]) < 1000
    assert one.ask("text", kind="log", path="log.txt", around=hit["hits"][0][0])["end"] > hit["hits"][0][0]
    os.truncate(log, 5 << 30)  # a hole: nobody wrote that
    assert one.ask("text", kind="log", path="log.txt")["size"] < 5 << 30
    assert time.monotonic() - begun < 20 * TIME_FACTOR


def test_a_search_goes_on_where_it_ended(one: OneRun) -> None:
    (one.folder("log") / "log.txt").write_text("".join(f"a hit {number}\n" for number in range(1000)))
    found: list[str] = []
    place: int | None = 0
    while place is not None:
        answer = one.ask("search", kind="log", path="log.txt", text="a HIT", **{"from": place})
        found += [line for _, line in answer["hits"]]
        place = answer["next"]
    assert found == [f"a hit {number}" for number in range(1000)]


def test_a_hit_between_two_blocks_is_found_once(one: OneRun) -> None:
    (one.folder("log") / "log.txt").write_bytes(b"." * ((1 << 20) - 3) + b"needle\n" + b"." * 100)
    assert len(one.ask("search", kind="log", path="log.txt", text="needle")["hits"]) == 1


@pytest.mark.parametrize("asked", [{"text": ""}, {"text": "a", "from": -1}, {"text": "a", "from": "x"}])
def test_a_search_for_nothing_is_refused(one: OneRun, asked: dict[str, Any]) -> None:
    one.refused("search", kind="log", path="log.txt", **asked)


@pytest.mark.parametrize("place", [-1, "1", 1.5, None])
def test_an_offset_is_a_whole_number(one: OneRun, place: Any) -> None:
    one.refused("text", kind="log", path="log.txt", before=place)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b" 1%\r 50%\r100%\nnext", "100%\nnext"),
        (b"windows\r\nends\r\n", "windows\nends\n"),
        (b"\xff\xfe bad \x00 \x07", "\ufffd\ufffd bad \ufffd \ufffd"),
        ("right\u202eleft".encode(), "right\ufffdleft"),
        (b"tab\tstays", "tab\tstays"),
        (b"\x1b", "\ufffd"),
    ],
)
def test_texts_are_readable(data: bytes, expected: str) -> None:
    assert readable(data) == expected


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    begun = time.monotonic()
    for data in (
        b"\x1b[" * (CHUNK_BYTES // 2),
        b"\x1b]" * (CHUNK_BYTES // 2),
        b"\r" * CHUNK_BYTES,
        b"\x1b[0" + b"0" * CHUNK_BYTES,
    ):
        readable(data)
    assert time.monotonic() - begun < 2 * TIME_FACTOR


def test_checkpoints_here_and_on_the_master(one: OneRun) -> None:
    folder = one.folder("checkpoint")
    (folder / ".resume").mkdir()
    (folder / ".resume" / "checkpoint_5.state").write_bytes(b"1")
    (folder / ".rla-pruned").mkdir()
    note = {
        "path": f"checkpoint/task/{one.index}/checkpoint_50.pt",
        "size": 7,
        "sha256": "",
        "mtime_ns": 1,
        "pruned_at": 1,
    }
    (folder / ".rla-pruned" / "checkpoint_50.pt.json").write_text(
        json.dumps({**note, "target": "sftp://m/r"})
    )
    found = one.ask("checkpoints")
    assert [(name, step, where) for name, _, _, step, where in found["files"]] == [
        ("checkpoint_5.pt", 5, "here"),
        ("checkpoint_10.pt", 10, "here"),
        ("checkpoint_50.pt", 50, "sftp://m/r"),
        ("checkpoint_100.pt", 100, "here"),
    ]
    assert found["bytes"] == 3 * 3 + 7


@pytest.mark.parametrize("rows", [3, 100_000])
def test_system_metrics(one: OneRun, rows: int) -> None:
    lines = ["timestamp,seconds,cpu_percent,gpu_percent", *(f"{1000 + n},{n},{n % 7}," for n in range(rows))]
    (one.folder("log") / "system.csv").write_text("\n".join(lines) + "\nhalf a ro")
    found = one.ask("system")["columns"]
    assert list(found) == ["timestamp", "seconds", "cpu_percent"]
    times = found["timestamp"]
    assert times == sorted(set(times))
    assert times[0] < 1100
    assert times[-1] == 1000 + rows - 1
    assert len(times) == (3 if rows == 3 else len(times)) <= 1200
    assert len(times) > 1000 or rows == 3


def test_no_system_metrics_and_broken_ones(one: OneRun) -> None:
    assert one.ask("system") == {"columns": {}}
    (one.folder("log") / "system.csv").write_bytes(b"\xff\x00,,\n" + b"inf,nan,x\n" * 5 + b"9" * (1 << 20))
    assert one.ask("system") == {"columns": {}}
