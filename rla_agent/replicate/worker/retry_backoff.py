"""Retry backoff of a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 300.0
MAX_LOGINS: Final = 3  # sshd's PerSourcePenalties ban after bad logins
LOGIN_REST_S: Final = 3600.0  # after so many; at this interval neither bans nor account locks count failures


def backoff_s(tries: int, random: float) -> float:
    """Full jitter: anything from 0 to min(5 min, 1 s · 2^tries), by `random` in [0, 1)."""
    return random * float(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 20)))


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a target. Times on the monotonic clock, which stops while suspended.

    Attributes:
        tries: failures in a row.
        logins: refused logins in a row.
        not_before: no attempt before this.
        reason, fix: of the last failure.
        blocked: somebody must act; an attempt checks whether they did, and sends nothing before.
    """

    tries: int = 0
    logins: int = 0
    not_before: float = 0.0
    reason: str = ""
    fix: str = ""
    blocked: bool = False

    def may_try(self, now: float) -> bool:
        """Whether a connection may be made at `now`."""
        return now >= self.not_before

    def failed(self, now: float, random: float, reason: str, fix: str) -> Health:
        """Note a failure that may pass."""
        not_before = now + backoff_s(self.tries, random)
        return Health(self.tries + 1, self.logins, not_before, reason, fix)

    def refused(self, now: float, random: float, reason: str, fix: str) -> Health:
        """Note a refused login; after three, somebody must act, and the next attempt is an hour away."""
        after = replace(self.failed(now, random, reason, fix), logins=self.logins + 1)
        if after.logins < MAX_LOGINS:
            return after
        return replace(after, blocked=True, not_before=now + LOGIN_REST_S * (1 + random))

    def stopped(self, now: float, random: float, reason: str, fix: str) -> Health:
        """Note that somebody must act: a foreign host key, no root, no credentials. Retried as above."""
        return replace(self.failed(now, random, reason, fix), blocked=True)
