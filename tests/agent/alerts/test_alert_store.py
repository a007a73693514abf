"""alerts.db: an event is told once, not too often, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_agent.alerts import alert_store
from rla_agent.alerts.alert_store import GIVEN_UP, KEPT_S, MAX_WAITING, SENT, AlertStore
from rla_agent.alerts.messages import Alert
from rla_agent.store.sqlite import open_or_replace


def alert(key: str, when: str = "nan", run: str = "run") -> Alert:
    return Alert(key, when, f"title {key}", "text", 1.0, "host", "rule", run, {})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AlertStore]:
    found = AlertStore(tmp_path / "alerts.db")
    yield found
    found.close()


def due(store: AlertStore, now: float) -> list[str]:
    return [delivery.alert["title"][6:] for delivery in store.due(now, now + 1e6)]


def test_an_event_is_told_once_by_each_channel(store: AlertStore) -> None:
    assert store.add(alert("a"), "c", ["x", "y"], 0, 10.0)
    assert not store.add(alert("a"), "c", ["x", "y"], 0, 11.0)
    assert [(d.channel, d.alert["title"]) for d in store.due(12.0, 1e9)] == [
        ("x", "title a"),
        ("y", "title a"),
    ]
    assert store.add(alert("a"), "another config", ["x"], 0, 12.0)


def test_the_interval(store: AlertStore) -> None:
    for key, now in (("a", 10.0), ("b", 11.0), ("c", 12.0), ("d", 13.0)):
        store.add(alert(key), "c", ["x"], 5, now)
    store.add(alert("other run", run="s"), "c", ["x"], 5, 13.0)
    store.add(alert("other event", when="killed"), "c", ["x"], 5, 13.0)
    assert due(store, 13.0) == ["a", "other run", "other event"]
    found = store.due(15.0, 1e9)
    assert [d.alert["title"][6:] for d in found] == ["a", "d", "other run", "other event"]
    assert found[1].alert["held_back"] == 2
    store.add(alert("e"), "c", ["x"], 5, 16.0)  # `d` went out at 15: the next not before 20
    assert "e" not in due(store, 19.9)
    assert "e" in due(store, 20.0)
    store.add(alert("f"), "c", ["x"], 5, 40.0)
    assert "f" in due(store, 40.0)


def test_a_clock_that_was_set_back_holds_nothing_up(store: AlertStore) -> None:
    store.add(alert("a"), "c", ["x"], 5, 1e9)
    store.add(alert("b"), "c", ["x"], 5, 1e6)
    assert [d.alert["title"][6:] for d in store.due(1e6, 1e6 + 100)] == ["a", "b"]


def test_deliveries(store: AlertStore) -> None:
    store.add(alert("a"), "c", ["x"], 0, 10.0)
    store.add(alert("b"), "c", ["x"], 0, 10.0)
    first, second = (d.number for d in store.due(10.0, 1e9))
    store.failed("c", "x", [first], "no", 30.0)
    assert (due(store, 29.0), store.waiting()) == ([], 2)
    ((entry),) = store.summary()
    assert (entry["error"], entry["waiting"], entry["next_try"]) == ("no", 2, 30.0)
    store.done([first], SENT, "", 31.0)
    store.done([second], GIVEN_UP, "never", 30.5)
    ((entry),) = store.summary()
    assert (entry["sent"], entry["given_up"], entry["error"], entry["last_sent"]) == (1, 1, "", 31.0)
    store.add(alert("c"), "c", ["x"], 0, 32.0)
    store.done([d.number for d in store.due(32.0, 1e9)], GIVEN_UP, "gone", 33.0)
    assert store.summary()[0]["error"] == "gone"
    assert [event["title"] for event in store.recent(2)] == ["title c", "title a"] or len(
        store.recent(2)
    ) == 2


def test_conditions_begin_once(store: AlertStore) -> None:
    assert [store.level("r:a", holds=holds) for holds in (True, True, False, True)] == [
        True,
        False,
        False,
        True,
    ]
    store.level("r:b", holds=True)
    store.level("s:b", holds=True)
    store.keep_levels("r:", {"b"})
    assert [store.level(name, holds=True) for name in ("r:a", "r:b", "s:b")] == [True, False, False]


def test_a_transaction_is_all_or_nothing(store: AlertStore) -> None:
    def add_and_fail() -> None:
        with store.transaction():
            store.add(alert("a"), "c", ["x"], 0, 1.0)
            raise KeyError

    with pytest.raises(KeyError):
        add_and_fail()
    assert store.waiting() == 0
    with store.transaction():
        assert store.run_changed("r", "killed@3", 1.0)
    assert not store.run_changed("r", "killed@3", 2.0)
    assert store.run_changed("r", "running@", 2.0)


def test_what_waits_for_a_channel_that_hangs_holds_up_no_other(store: AlertStore) -> None:
    for number in range(600):  # more than one look takes
        store.add(alert(str(number)), "c", ["hangs"], 0, 1.0)
    store.add(alert("last"), "c", ["fine"], 0, 1.0)
    assert {d.channel for d in store.due(2.0, 1e9)} == {"hangs"}
    assert [d.channel for d in store.due(2.0, 1e9, {("c", "hangs"): None})] == ["fine"]
    many = [("c", str(number)) for number in range(3000)]
    assert store.due(2.0, 1e9, [*many, ("c", "hangs"), ("c", "fine")]) == []


def test_what_is_old_or_too_much_goes(store: AlertStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_store, "MAX_EVENTS", 3)
    for number in range(10):
        store.add(alert(str(number)), "c", ["x"], 0, float(number))
    numbers = [d.number for d in store.due(20.0, 1e9)]
    store.done(numbers[:9], SENT, "", 20.0)
    assert store.added == 10
    store.sweep(21.0)
    assert store.waiting() == 1
    assert store.added == 0
    store.sweep(30.0 + KEPT_S)
    assert [d.alert["title"] for d in store.due(1e9, 2e9)] == ["title 9"], "what waits is kept"
    assert store.summary()[0]["sent"] == 0
    assert MAX_WAITING > 100


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    path.write_bytes(b"x" * 9000)
    found, aside = open_or_replace(path, AlertStore)
    found.close()
    assert Path(aside).read_bytes() == b"x" * 9000
    found, aside = open_or_replace(path, AlertStore)
    found.close()
    assert aside == ""
