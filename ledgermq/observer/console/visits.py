"""Visits: who has signed in from which browser, for how long, and what its changes must carry."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ledgermq.observer.callers import HttpCaller

COOKIE = "ledgermq-visit"
LIFETIME_S = 12 * 3_600
IDLE_S = 3_600
VISITS_MAX = 1_000
VISITS_PER_CALLER_MAX = 16
_RANDOM_BYTES = 32


@dataclass(slots=True)
class Visit:
    """One browser of one caller.

    Attributes:
        proof: digest of what the caller has shown; a token or a secret that is another now ends
            the visit.
        change_key: what a form must bring along (CSRF), known to this visit's pages alone.
        notice: tone and text of what the last change came to, shown once.
        is_signed_in: whether the caller has shown something; else the address alone admits it.
    """

    caller: HttpCaller
    proof: bytes
    change_key: str
    is_signed_in: bool
    began_s: float
    seen_s: float
    notice: tuple[str, str] | None = None

    def allows(self, change_key: str) -> bool:
        """Whether a form comes from a page of this visit."""
        return hmac.compare_digest(change_key.encode(), self.change_key.encode())


class Visits:
    """Those of one life of the observer; in memory alone.

    Invariant: at most ``VISITS_MAX``, of one caller at most ``VISITS_PER_CALLER_MAX``; the ones
    seen longest ago give way.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        # By the digest of its id: how long a look-up takes tells nothing of ids there are.
        self._visits: OrderedDict[bytes, Visit] = OrderedDict()

    def begin(self, caller: HttpCaller, proof: bytes, *, is_signed_in: bool) -> tuple[str, Visit]:
        """A new visit, and the id that its browser keeps."""
        own = [key for key, visit in self._visits.items() if visit.caller == caller]
        for key in own[: max(0, len(own) - VISITS_PER_CALLER_MAX + 1)]:
            del self._visits[key]
        while len(self._visits) >= VISITS_MAX:
            self._visits.popitem(last=False)
        now_s = self._now_s()
        visit = Visit(
            caller, proof, secrets.token_urlsafe(_RANDOM_BYTES), is_signed_in, now_s, now_s
        )
        visit_id = secrets.token_urlsafe(_RANDOM_BYTES)
        self._visits[_digest(visit_id)] = visit
        return visit_id, visit

    def find(self, visit_id: str) -> Visit | None:
        """The visit that a browser names; None: there is none, or it is over."""
        key = _digest(visit_id)
        visit = self._visits.get(key)
        if visit is None:
            return None
        now_s = self._now_s()
        if now_s - visit.began_s > LIFETIME_S or now_s - visit.seen_s > IDLE_S:
            del self._visits[key]
            return None
        visit.seen_s = now_s
        self._visits.move_to_end(key)
        return visit

    def end(self, visit_id: str) -> None:
        """It is over."""
        self._visits.pop(_digest(visit_id), None)

    def __len__(self) -> int:
        """How many there are, those included that nobody has come back to."""
        return len(self._visits)


ATTEMPTS = 10
ATTEMPTS_OF_ALL = 60
PER_S = 60.0
NAMES_MAX = 10_000
_ALL = ("all",)

Attempt = tuple[tuple[str, ...], ...]
"""What an attempt counts for."""


class Attempts:
    """Attempts to sign in that have not succeeded, by the address, by the name that was tried, and
    all together.

    After ``ATTEMPTS`` of one within ``PER_S`` seconds, or ``ATTEMPTS_OF_ALL`` in all, the next one
    waits: guessing has no end otherwise. One counts from its beginning, so that many at once are
    not all heard. What strangers try does not keep somebody out of where he has signed in before:
    of him and that address alone is counted there.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._begun: OrderedDict[tuple[str, ...], list[float]] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin(self, where: str, name: str) -> tuple[int, Attempt]:
        """Count one more attempt, unless it has to wait.

        Args:
            where: whence it comes.
            name: a user's; empty: with a token.

        Returns:
            whole seconds until it is heard, 0: it is heard now; and what ``succeeded`` takes.
        """
        keys: Attempt = (("pair", where, name),)
        if (where, name) not in self._known:
            keys = (("where", where), _ALL, *([("name", name)] if name else []))
        wait_s = max(map(self._wait_s, keys))
        if not wait_s:
            for key in keys:
                times = self._begun.setdefault(key, [])
                times.append(self._now_s())
                del times[: -ATTEMPTS_OF_ALL if key == _ALL else -ATTEMPTS]
                self._begun.move_to_end(key)
            while len(self._begun) > NAMES_MAX:
                self._begun.popitem(last=False)
        return -int(-wait_s // 1), keys

    def succeeded(self, where: str, name: str, attempt: Attempt) -> None:
        """An attempt was right: it does not count, and ``name`` is known there."""
        for key in attempt:
            times = self._begun.get(key)
            if times:
                times.pop()
        self._known[where, name] = None
        self._known.move_to_end((where, name))
        while len(self._known) > NAMES_MAX:
            self._known.popitem(last=False)

    def _wait_s(self, key: tuple[str, ...]) -> float:
        most = ATTEMPTS_OF_ALL if key == _ALL else ATTEMPTS
        times = self._begun.get(key, [])
        if len(times) < most:
            return 0.0
        return max(0.0, PER_S - (self._now_s() - times[-most]))


def proof_of(shown: str) -> bytes:
    """What is kept of a token or a secret in the place of it."""
    return _digest(shown)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
