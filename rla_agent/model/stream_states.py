"""How a stream stands towards its item. Pure: events in, the next state out.

A stream's rows go from the spool into the files of an item. Whether they can is one of six states:

* TAKING_IN: as far as anybody knows the item is there.
* ITEM_MISSED: some access did not find the item. That alone says little: a data root that is moved,
  unmounted, or on a server that restarts looks the same for a moment. The next look decides.
* ROOT_AWAY: the data root is not there, or another one bears its name. Rows wait in the spool, and the
  outputs are brought in line with their files anew once it is back.
* ITEM_REMOVED: somebody removed the item, or gave the stream up. It has no outputs any more; what is
  left of it is read to the end, so that the spool gets rid of it, and dropped.
* PARKED: this release cannot read on (a frame of a later one, an item that makes no sense). Rows wait
  for another agent, or for `rla-agent forget`.
* BROKEN: a fault of the agent, met with this stream. What is in memory counts for nothing; the agent's
  next start tries again.

::

                     missed               removed
      TAKING_IN ---------------> ITEM_MISSED -------> ITEM_REMOVED
       |  |  ^                      |                      ^
       |  |  | root found           | root away            | given up (from every state)
       |  |  |                      v                      |
       |  |  +------------------ ROOT_AWAY ----------------+
       |  +----- root away ---------^
       +-------- refused --------> PARKED          fault: from every state to BROKEN

In ROOT_AWAY, PARKED and BROKEN nothing is taken in, and the stream says why (`parked`). An access may
miss the item there too, or in ITEM_REMOVED (a rewrite that was under way): that says nothing new.

Beside this a stream's writer lives or is gone, and a gone one said a last word or did not. Both are
independent of the item: a stream ends when its writer is gone and all that it wrote was taken in or dropped.
"""

from __future__ import annotations

from enum import Enum


class StreamState(Enum):
    """See above."""

    TAKING_IN = "taking in"
    ITEM_MISSED = "item missed"
    ITEM_REMOVED = "item removed"
    ROOT_AWAY = "root away"
    PARKED = "parked"
    BROKEN = "broken"


class StreamEvent(Enum):
    """What happens to a stream; `ROOT_AWAY`, `REFUSED` and `FAULT` come with a reason."""

    MISSED = "an access did not find the item"
    REMOVED = "the item is gone, and its data root is there"
    ROOT_AWAY = "the data root is not there, or another one"
    ROOT_FOUND = "the data root is back"
    REFUSED = "this release cannot read on"
    FAULT = "an exception that is ours"
    GIVEN_UP = "the stream is gone from the spool for good"


S, E = StreamState, StreamEvent
WAITING = frozenset({S.ROOT_AWAY, S.PARKED, S.BROKEN})
"""States in which nothing is taken in."""
TRANSITIONS: dict[tuple[StreamState, StreamEvent], StreamState] = {
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
}


class ForbiddenEventError(Exception):
    """An event in a state in which it cannot happen: a fault of the agent."""


def after(state: StreamState, event: StreamEvent) -> StreamState:
    """The next state.

    Raises:
        ForbiddenEventError: the event cannot happen in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        message = f"{event.name} in state {state.name}: {event.value}, though the stream is {state.value!r}"
        raise ForbiddenEventError(message) from None
