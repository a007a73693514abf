"""State tables of streams with their outputs. Pure.

TRANSITIONS is the table: events in, states out.

A stream's rows go from the spool into the files of an item. One of six states says whether they can:

* TAKING_IN: as far as is known the item is there.
* ITEM_MISSED: some access did not find the item. That alone proves nothing: a data root that is moved,
  unmounted, or on a server that restarts looks the same for a moment. The next check decides.
* ROOT_AWAY: the data root is missing, or another one has its name. Rows wait in the spool, and the
  outputs are aligned with their files again once it is back.
* ITEM_REMOVED: somebody removed the item, or discarded the stream. It has no outputs any more; its further
  records are read to the end, so that the spool is freed, and dropped.
* PARKED: this release cannot continue (a frame of a later one, an invalid item). Rows wait for another agent,
  or for `rla-agent forget`.
* BROKEN: an internal error with this stream. Its state in memory is void; the agent's next start tries again.

::

                     missed               removed
      TAKING_IN ---------------> ITEM_MISSED -------> ITEM_REMOVED
        |  |  ^                      |                      ^
        |  |  | root found           | root away            | given up (from every state)
        |  |  |                      v                      |
        |  |  +------------------ ROOT_AWAY ----------------+
        |  +----- root away ---------^
        +-------- refused --------> PARKED          fault: from every state to BROKEN

In ROOT_AWAY, PARKED and BROKEN nothing is ingested, and `parked` has the reason. An access may miss the item
there too, or in ITEM_REMOVED (a rewrite that was under way): that changes nothing.

In addition a stream's writer lives or has ended, with or without a closing record. Both are independent of
the item: a stream ends when its writer has ended and all of its records were ingested or dropped.

Each of its outputs takes records in one state only, READY, and there only while no write has just failed
(`error`, retried after a rest) and no other file took its name since the last commit (`moved`: the commit
first stores where the output continues in it). The other states:

* NEW: the file has yet to be opened, truncated to its durable size, or made.
* WIDENING: the next record has a column that the table lacks; it waits for a rewrite.
* REWRITING: a thread writes the wider table into a temp file.
* RENAMING: agent.db has the temp file as the content from now on; it has yet to get its name.
* SUSPECT: a sync failed, or closing the file did. Bytes written since the last commit may be lost although
  they can still be read, so the durable part is copied into a new file.

::

                begun            too narrow            rewrite
      NEW -------------> READY -------------> WIDENING --------> REWRITING
        ^                  |  ^                    ^  rewrite failed  |
        |  started over    |  |  renamed           +------------------+
        +------------------+  +-------- RENAMING <------- rewritten --+
        |
        | restored         suspected (a sync failed)
      SUSPECT <---------- NEW, READY, WIDENING

`dirty` is not a state: the file has bytes that no sync has covered, in any state.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar


class StreamState(Enum):
    """Of a stream; see above."""

    TAKING_IN = "taking in"
    ITEM_MISSED = "item missed"
    ITEM_REMOVED = "item removed"
    ROOT_AWAY = "root away"
    PARKED = "parked"
    BROKEN = "broken"


class StreamEvent(Enum):
    """Event of a stream; `ROOT_AWAY`, `REFUSED` and `FAULT` come with a reason."""

    MISSED = "an access did not find the item"
    REMOVED = "the item is gone, and its data root is there"
    ROOT_AWAY = "the data root is not there, or another one"
    ROOT_FOUND = "the data root is back"
    REFUSED = "this release cannot read on"
    FAULT = "an exception that is ours"
    GIVEN_UP = "the stream is gone from the spool for good"


class OutputState(Enum):
    """Of an output; see above."""

    NEW = "new"
    READY = "ready"
    WIDENING = "widening"
    REWRITING = "rewriting"
    RENAMING = "renaming"
    SUSPECT = "suspect"


class OutputEvent(Enum):
    """Event of an output."""

    BEGUN = "its file is open and holds what it should"
    STARTED_OVER = "its file was removed or emptied, or another one took its name"
    TOO_NARROW = "a record needs columns that the table lacks"
    REWRITE = "a rewrite has begun"
    REWRITE_FAILED = "it failed, or could not be stored"
    REWRITTEN = "it is stored in agent.db"
    RENAMED = "the temp file has its name"
    SUSPECTED = "a sync or a close failed"
    RESTORED = "its state is that of a commit again"


class ForbiddenEventError(Exception):
    """An event in a state in which it cannot happen: an internal error."""


S, E = StreamState, StreamEvent
OS, OE = OutputState, OutputEvent
State = TypeVar("State", StreamState, OutputState)
WAITING = frozenset({S.ROOT_AWAY, S.PARKED, S.BROKEN})
"""States of a stream in which nothing is taken in."""
TRANSITIONS: dict[tuple[Enum, Enum], Any] = {  # to a state of the same kind
    (S.TAKING_IN, E.MISSED): S.ITEM_MISSED,
    (S.TAKING_IN, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.TAKING_IN, E.REFUSED): S.PARKED,
    (S.ITEM_MISSED, E.MISSED): S.ITEM_MISSED,
    (S.ITEM_MISSED, E.REMOVED): S.ITEM_REMOVED,
    (S.ITEM_MISSED, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.ITEM_MISSED, E.REFUSED): S.PARKED,
    (S.ITEM_REMOVED, E.MISSED): S.ITEM_REMOVED,
    (S.ITEM_REMOVED, E.REFUSED): S.PARKED,
    (S.ROOT_AWAY, E.MISSED): S.ROOT_AWAY,
    (S.ROOT_AWAY, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.ROOT_AWAY, E.ROOT_FOUND): S.TAKING_IN,
    (S.PARKED, E.MISSED): S.PARKED,
    (S.PARKED, E.REFUSED): S.PARKED,
    (S.BROKEN, E.MISSED): S.BROKEN,
    (S.BROKEN, E.REFUSED): S.BROKEN,
    **{(state, E.FAULT): S.BROKEN for state in S},
    **{(state, E.GIVEN_UP): S.ITEM_REMOVED for state in S},
    (OS.NEW, OE.BEGUN): OS.READY,
    (OS.NEW, OE.STARTED_OVER): OS.NEW,
    (OS.NEW, OE.SUSPECTED): OS.SUSPECT,
    (OS.NEW, OE.RESTORED): OS.NEW,
    (OS.READY, OE.STARTED_OVER): OS.NEW,
    (OS.READY, OE.TOO_NARROW): OS.WIDENING,
    (OS.READY, OE.SUSPECTED): OS.SUSPECT,
    (OS.WIDENING, OE.STARTED_OVER): OS.NEW,
    (OS.WIDENING, OE.REWRITE): OS.REWRITING,
    (OS.WIDENING, OE.SUSPECTED): OS.SUSPECT,
    (OS.REWRITING, OE.REWRITE_FAILED): OS.WIDENING,
    (OS.REWRITING, OE.REWRITTEN): OS.RENAMING,
    (OS.RENAMING, OE.RENAMED): OS.READY,
    (OS.RENAMING, OE.SUSPECTED): OS.RENAMING,  # of the file that is about to be replaced
    (OS.SUSPECT, OE.BEGUN): OS.SUSPECT,
    (OS.SUSPECT, OE.STARTED_OVER): OS.NEW,
    (OS.SUSPECT, OE.SUSPECTED): OS.SUSPECT,
    (OS.SUSPECT, OE.RESTORED): OS.NEW,
}


def after(state: State, event: StreamEvent | OutputEvent) -> State:
    """The next state.

    Raises:
        ForbiddenEventError: the event cannot happen in this state.
    """
    try:
        following: State = TRANSITIONS[state, event]
    except KeyError:
        whose = "stream" if isinstance(state, StreamState) else "output"
        raise ForbiddenEventError(
            f"{event.name} in state {state.name}: {event.value}, though the {whose} is {state.value!r}"
        ) from None
    return following
