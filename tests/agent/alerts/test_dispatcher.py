"""A dispatcher whose alerts.db cannot be opened or written: nothing goes out twice, and it goes on later."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.alert_receivers import HookServer, hooked

from rla_agent.alerts import dispatcher as module
from rla_agent.alerts.alert_store import STEPS, AlertStore
from rla_agent.alerts.dispatcher import Dispatcher
from rla_agent.alerts.messages import Alert
from rla_agent.alerts.rule_files import RuleSet
from rla_agent.store.agent_db import AgentDatabase
from rla_agent.store.config_reader import ConfigReader
from rla_client.contract.agent.places import Places


@pytest.fixture
def config(tmp_path: Path, hook: HookServer) -> Path:
    return hooked(tmp_path / "p", "- {when: nan, send: chat}", hook.url)


@pytest.fixture
def made(places: Places, config: Path, monkeypatch: pytest.MonkeyPatch) -> Dispatcher:
    """It knows the configuration, and is not started."""
    monkeypatch.setattr(module, "REOPEN_S", 0.1)
    AgentDatabase(places.database).close()
    return Dispatcher(places, RuleSet(config, ConfigReader()), list, time.time())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else can write; as good as a full disk."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def add(store: AlertStore, config: Path, key: str = "a") -> None:
    alert = Alert(key, "nan", "title", "text", 1.0, "host", "rule", "run", {})
    assert store.add(alert, str(config), ["chat"], 0, time.time())


@pytest.mark.parametrize("answers", [[], [(500, {})]], ids=["accepted", "refused"])
def test_a_message_is_tried_once_while_its_outcome_cannot_be_stored(
    places: Places,
    made: Dispatcher,
    config: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
    answers: list[tuple[int, dict[str, str]]],
) -> None:
    hook.answers = list(answers)
    path = places.state / "alerts.db"
    with closing(AlertStore(path)) as store, closing(AgentDatabase(places.database)) as database:
        made._identity = module._identity(path)
        store._db.execute("PRAGMA busy_timeout=10")
        add(store, config)
        made._turn(store, database)
        wait_until(lambda: not made._couriers._reports.empty())
        with locked(path):
            for _ in range(5):
                made._turn(store, database)
                assert "locked" in made.fault
        assert hook.tries == 1
        made._turn(store, database)
        assert not made.fault
        (entry,) = store.summary()
        assert (entry["sent"], bool(entry["error"])) == ((0, True) if answers else (1, False))
        made._turn(store, database)
        assert hook.tries == 1


def make_unusable(path: Path, how: str) -> None:
    if how == "a folder":
        path.mkdir()
    else:
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


@pytest.mark.parametrize("how", ["a folder", "of a later release"])
def test_alerts_go_on_when_their_file_can_be_opened(
    places: Places,
    made: Dispatcher,
    config: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
    how: str,
) -> None:
    path = places.state / "alerts.db"
    make_unusable(path, how)
    made.start()
    try:
        wait_until(lambda: made.fault)
        if how == "a folder":
            path.rmdir()
        else:
            path.unlink()
        wait_until(lambda: path.is_file() and not made.fault, what="a file of its own")
        with closing(AlertStore(path)) as store:
            add(store, config)
        wait_until(lambda: len(hook.posts) == 1)
        assert made.is_alive()
    finally:
        made.stop(5)


def test_alerts_go_on_after_an_internal_error(
    places: Places,
    made: Dispatcher,
    config: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    """A firing that no agent wrote: the thread meets it at each look, until it is gone."""
    with closing(sqlite3.connect(places.database)) as db, db:
        db.execute("INSERT INTO firings VALUES('s', 1, 2, 'rule', 'run', 'no JSON')")
    made.start()
    try:
        wait_until(lambda: "internal error" in made.fault)
        with closing(sqlite3.connect(places.database)) as db, db:
            db.execute("DELETE FROM firings")
        wait_until(lambda: not made.fault)
        with closing(AlertStore(places.state / "alerts.db")) as store:
            add(store, config)
        wait_until(lambda: len(hook.posts) == 1)
    finally:
        made.stop(5)


def test_what_another_file_had_sent_is_not_noted_in_a_new_one(
    places: Places, made: Dispatcher, config: Path, hook: HookServer, wait_until: Callable[..., Any]
) -> None:
    """The numbers of deliveries begin again there."""
    path = places.state / "alerts.db"
    with closing(made._open_store()) as store, closing(AgentDatabase(places.database)) as database:
        add(store, config)
        made._turn(store, database)
        wait_until(lambda: not made._couriers._reports.empty())
    path.write_bytes(b"no database" * 1000)
    with closing(made._open_store()) as store, closing(AgentDatabase(places.database)) as database:
        add(store, config, "another")
        made._turn(store, database)
        wait_until(lambda: len(hook.posts) == 2)
        wait_until(lambda: made._turn(store, database) and not made.waiting)
        assert store.summary()[0]["sent"] == 1


def test_the_log_of_alerts_is_grown(places: Places, made: Dispatcher) -> None:
    """Then a full disk does not keep what was sent from being noted."""
    with closing(made._open_store()):
        assert (places.state / "alerts.db-wal").stat().st_size > 4 << 20


def test_an_alert_is_in_the_log_once_it_is_stored(
    places: Places, tmp_path: Path, hook: HookServer, caplog: pytest.LogCaptureFixture
) -> None:
    """And not at each look while the disk is full."""
    config = hooked(tmp_path / "p", "- {when: disk_low, free_bytes: 1000000000000000, send: chat}", hook.url)
    AgentDatabase(places.database).close()
    low = Dispatcher(places, RuleSet(config, ConfigReader()), list, time.time())
    caplog.set_level("INFO", "rla_agent.alerts")
    with closing(low._open_store()) as store, closing(AgentDatabase(places.database)) as database:
        low._events._host = "x" * 100_000  # its text needs pages of its own, of which none is free
        store._db.execute("VACUUM")
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(3):
            low._turn(store, database)
        assert "full" in low.fault
        assert "alert: " not in caplog.text
        store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        for _ in range(3):
            low._turn(store, database)
        assert not low.fault
    assert caplog.text.count("alert: disk low") == 1
