"""Files that are sent to a browser."""

from __future__ import annotations

import pytest
from support.run_files import OneRun


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
