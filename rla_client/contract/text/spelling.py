"""Resolution of shortened or misspelt names.

A name of several parts (`charts/episodic_return`, `agent.lr`) may be shortened to its last parts where no
other known name ends in them; a complete name always means itself. An unknown name becomes an error with the
nearest names as its hint.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from rla_client.contract.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable


CUTOFF = 0.6  # difflib's measure of likeness; below, words share letters but no meaning
MARGIN = 0.12  # of likeness below the nearest name's; farther names are not suggested
MOST_MEANT = 3
MOST_LISTED = 20
MOST_COMPARED = 5000  # names; comparing one takes 50 µs
_PARTS = re.compile(r"[/.]")


def near(name: object, known: Iterable[str], count: int = MOST_MEANT) -> list[str]:
    """At most `count` known names that look like `name`, the nearest first; case does not count.

    Names of several parts are also compared by their last ones, and match by any word in them.
    """
    import difflib  # noqa: PLC0415 - for messages only

    wanted = str(name).casefold()
    matchers = {
        text: difflib.SequenceMatcher(b=text, autojunk=False) for text in (wanted, _PARTS.split(wanted)[-1])
    }
    found: list[tuple[float, str]] = []
    for word in list(dict.fromkeys(known))[:MOST_COMPARED]:
        whole = word.casefold()
        likeness = 0.0
        for text, matcher in product({whole, _PARTS.split(whole)[-1]}, matchers.values()):
            matcher.set_seq1(text)
            if matcher.real_quick_ratio() >= CUTOFF and matcher.quick_ratio() >= CUTOFF:
                likeness = max(likeness, matcher.ratio())
        if wanted in re.split(r"[\W_]+", whole):
            likeness = max(likeness, CUTOFF)
        if likeness >= CUTOFF:
            found.append((-likeness, word))
    found.sort(key=lambda pair: pair[0])
    return [word for likeness, word in found[:count] if likeness <= found[0][0] + MARGIN]


def hint(name: object, known: Iterable[str]) -> str:
    """`did you mean 'x' or 'y'?`, or else `there are: …`; empty where nothing is known."""
    words = list(dict.fromkeys(known))
    meant = near(name, words)
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    return f"there are: {listed(words)}" if words else ""


def listed(names: Iterable[str]) -> str:
    """Names separated by commas, `MOST_LISTED` at most, the rest counted."""
    words = list(names)
    more = len(words) - MOST_LISTED
    return ", ".join(words[:MOST_LISTED]) + (f", … and {more} more" if more > 0 else "")


def ends_in(name: str, known: Iterable[str]) -> list[str]:
    """The known names whose last parts are `name`, of whatever role (`loss@rank1`)."""
    if not name:
        return []
    tails = (f"/{name}", f".{name}")
    return [
        word
        for word in dict.fromkeys(known)
        if word.endswith(tails)
        or ("@" in word and ((metric := word.rpartition("@")[0]) == name or metric.endswith(tails)))
    ]


def full_name(name: str, known: Iterable[str], problem: str) -> str:
    """Resolve a name to the one known name.

    Args:
        name: complete, or its last parts.
        known: all names.
        problem: the error's text for an unknown name.

    Raises:
        UnknownNameError: none matches, or several do; the message has a line `hint: …`.
    """
    words = list(dict.fromkeys(known))
    if name in words:
        return name
    found = ends_in(name, words)
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError(f"{name!r} fits {len(found)} names\nhint: give more of one: {listed(found)}")
    raise unknown(name, words, problem)


def unknown(name: object, known: Iterable[str], problem: str) -> UnknownNameError:
    """The error for an unknown name, with the nearest names as its hint."""
    advice = hint(name, known)
    return UnknownNameError(f"{problem}\nhint: {advice}" if advice else problem)
