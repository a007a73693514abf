"""Secrets in the texts of events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event

from rla_client.run.record.shown_event import shown_event


def logger(secrets: object) -> Any:
    return SimpleNamespace(secrets=secrets, shown=lambda text: text.replace("s3cret", "***"))


def test_secrets_in_texts_are_hidden() -> None:
    event = Event(step=3, summary=summary.text("args", "key: s3cret"))
    hidden = Event.FromString(shown_event(event, logger(object())))
    assert hidden.summary.value[0].tensor.string_val[0] == b"key: ***"
    assert (hidden.step, event.summary.value[0].tensor.string_val[0]) == (3, b"key: s3cret")


def test_other_events_and_runs_without_secrets_stay_as_they_are() -> None:
    text, number = Event(summary=summary.text("args", "s3cret")), Event(summary=summary.scalar("s3cret", 1.0))
    assert shown_event(text, logger(None)) == text.SerializeToString()
    assert shown_event(number, logger(object())) == number.SerializeToString()
