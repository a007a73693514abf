"""`rla web` as a command: where it listens, what it says, how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.page_lab import PageServer
from support.page_runs import LiveRun, write_page_run
from support.ports import free_port
from support.waiting import wait_until

Serve = Callable[..., PageServer]
Rla = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def filled(root: Path) -> Path:
    write_page_run(root, 0)
    return root


def test_it_listens_on_loopback_alone(page_server: Serve, filled: Path) -> None:
    server = page_server(filled)
    assert server.host == "127.0.0.1"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A" and int(local.partition(":")[2], 16) == server.port:
            assert local.startswith("0100007F:")
            break
    else:
        pytest.fail("nobody listens there")


@pytest.mark.slow
def test_a_port_that_was_named_is_taken_or_it_says_so(page_server: Serve, filled: Path, rla: Rla) -> None:
    port = free_port()
    server = page_server(filled, words=("--port", str(port)))
    assert server.port == port
    done = rla("web", "-d", str(filled), "--port", str(port), "--no-browser")
    assert done.returncode != 0
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ports_that_are_no_ports(filled: Path, rla: Rla) -> None:
    for port in ("-1", "65536", "x"):
        done = rla("web", "-d", str(filled), "--port", port, "--no-browser")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_second_page_takes_the_next_free_port(
    page_server: Serve, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--port`, from 8787 on."""
    from rla_client.web.server import FIRST_PORT, TRIED_PORTS

    program = tmp_path / "plain.py"
    program.write_text(
        "import sys\nfrom rla_client.cli.app import main\n"
        "place = sys.argv.index('--port')\ndel sys.argv[place:place + 2]\n"
        "sys.argv.remove('rla_client.cli.app')\nmain()\n"
    )
    first = PageServer([filled], tmp_path / "first", python=(str(program),))
    try:
        second = PageServer([filled], tmp_path / "second", python=(str(program),))
    except AssertionError:
        first.close()
        raise
    try:
        assert first.port != second.port  # the second's is lower where a page of another test has just ended
        assert {first.port, second.port} <= {*range(FIRST_PORT, FIRST_PORT + TRIED_PORTS)}
        assert second.ask("runs")["number"] == [0]
    finally:
        first.close()
        second.close()


def test_another_host_is_warned_of(page_server: Serve, filled: Path) -> None:
    server = page_server(filled, words=("--host", "0.0.0.0"))
    assert socket.gethostname() in server.base
    assert "whoever" in server.told()
    assert "nothing is encrypted" in server.told()
    server.host = "127.0.0.1"
    assert server.ask("runs")["number"] == [0]


def test_ipv6(page_server: Serve, filled: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no IPv6 here")
    server = page_server(filled, words=("--host", "::1"))
    assert server.base == f"http://[::1]:{server.port}"
    answer = server.request("GET", f"/?token={server.token}", {"Host": f"[::1]:{server.port}"})
    assert answer.status == 200


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", ""])
def test_a_host_that_cannot_be_listened_at(filled: Path, rla: Rla, host: str) -> None:
    done = rla("web", "-d", str(filled), "--host", host, "--port", "0", "--no-browser")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "--host" in done.stderr or "cannot listen" in done.stderr


def test_how_to_come_from_another_machine_is_said(page_server: Serve, filled: Path) -> None:
    server = page_server(filled)
    assert f"ssh -L {server.port}:127.0.0.1:{server.port} " in server.told()
    assert "Ctrl-C" in server.told()


def test_without_the_extra_it_says_what_to_install(filled: Path, tmp_path: Path) -> None:
    """As where starlette is not installed."""
    program = tmp_path / "bare.py"
    program.write_text(
        "import sys\nsys.modules['starlette'] = None\nsys.modules['uvicorn'] = None\n"
        "from rla_client.cli.app import main\nmain()\n"
    )
    command = ["web", "-d", str(filled), "--port", "0", "--no-browser"]
    done = subprocess.run(
        [sys.executable, str(program), *command],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert "pip install 'rla-agent[web]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_other_commands_need_no_extra(filled: Path, tmp_path: Path) -> None:
    program = tmp_path / "bare.py"
    program.write_text(
        "import sys\nsys.modules['starlette'] = None\nsys.modules['uvicorn'] = None\n"
        "from rla_client.cli.app import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, str(program), "ls", "-d", str(filled)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "09-30-00" in done.stdout


@pytest.mark.slow
def test_what_is_no_database_is_refused(rla: Rla, tmp_path: Path, filled: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "file").write_text("")
    for wrong in (plain, plain / "none", plain / "file"):
        done = rla("web", "-d", str(filled), "-d", str(wrong), "--port", "0", "--no-browser")
        assert done.returncode == 1
        assert str(wrong) in done.stderr.replace("\n", "")
        assert "Traceback" not in done.stderr


def test_the_database_of_the_environment(
    page_server: Serve, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLA_DATA_ROOT", str(filled))
    assert page_server().ask("runs")["databases"] == [str(filled)]


def test_ctrl_c_ends_it(page_server: Serve, filled: Path) -> None:
    server = page_server(filled)
    assert server.ask("runs")["number"] == [0]
    assert server.interrupt() == 0
    assert "Traceback" not in server.told()


@pytest.mark.slow
def test_ctrl_c_ends_it_with_connections_open(page_server: Serve, filled: Path) -> None:
    """One that says nothing, one kept alive, one in the middle of a body."""
    server = page_server(filled)
    address = (server.host, server.port)
    with (
        socket.create_connection(address) as _,
        server.connection() as kept,
        socket.create_connection(address) as half,
    ):
        kept.request("GET", "/static/main.js", headers={"Authorization": f"Bearer {server.token}"})
        assert kept.getresponse().read()
        half.sendall(
            f"POST /api/runs HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
        )
        assert server.interrupt() == 0
    assert "Traceback" not in server.told()


@pytest.mark.slow
def test_ctrl_c_ends_it_with_a_stream_open(page_server: Serve, root: Path) -> None:
    live = LiveRun(root)
    server = page_server(root)
    (number,) = server.ask("runs")["number"]
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    body = json.dumps({"cursors": {"return": {str(number): live.rows}}})
    with server.connection() as connection:
        connection.request("POST", "/api/live", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.readline().startswith(b"event: ")
        assert server.interrupt() == 0
    assert "Traceback" not in server.told()


def test_sigterm_ends_it_too(page_server: Serve, filled: Path) -> None:
    server = page_server(filled)
    server.process.terminate()
    assert server.process.wait(60) in {0, -15}
    server.process.returncode = 0  # by us, so no fault at teardown


@pytest.mark.slow
def test_it_reads_while_a_run_is_written(page_server: Serve, root: Path) -> None:
    live = LiveRun(root).start(0.01)
    try:
        server = page_server(root)
        first = server.ask("runs")["step"][0]
        wait_until(lambda: server.ask("runs")["step"][0] > first + 5, what="later steps")
    finally:
        live.stop()


def test_nothing_is_written_into_the_database(page_server: Serve, filled: Path) -> None:
    def tree() -> dict[str, tuple[int, int]]:
        found = [one for one in filled.rglob("*") if one.is_file()]
        return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in found}

    before = tree()
    server = page_server(filled)
    server.ask("runs")
    server.ask("names")
    server.get("/")
    assert server.interrupt() == 0
    assert tree() == before


def test_what_is_shown_first_is_read_before_it_is_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rla_client.web import server
    from rla_client.web.run_registry import Site

    write_page_run(root, 1)
    site = Site([root])
    read: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(
        server, "read_entries", lambda _, entries, names: read.append((len(entries), list(names)))
    )
    site.read_ahead.clear()
    server._read_ahead(site)
    assert read == [(1, ["time-step", "return"])]
    assert site.read_ahead.is_set()


def test_reading_ahead_fails_quietly_and_holds_nobody_up(root: Path, tmp_path: Path) -> None:
    from rla_client.web import server
    from rla_client.web.run_registry import Site

    site = Site([root])
    root.rename(tmp_path / "gone")
    site.read_ahead.clear()
    server._read_ahead(site)
    assert site.read_ahead.is_set()
