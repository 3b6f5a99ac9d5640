"""Host names: the addresses that one stands for, asked for in the background, each time anew.

``getaddrinfo`` blocks for as long as the resolver likes, so each question has a thread, which ends
with its answer. All that ask for a name at the same time share a question: a resolver that hangs
holds one thread a name, whoever asks, and nothing else waits for it. Nothing is kept here between
two questions but what the last answer was: how long a record holds is the resolver's to know, and
``getaddrinfo`` does not tell.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import threading
from typing import NamedTuple

from ledgermq.hosts.wake_bell import WakeBell, new_bell, wait_for_descriptors

ANSWER_S = 5.0
"""Who has waited so long for an answer is told that there is none; a late one is taken all the
same."""

ADDRESSES_MAX = 64
"""Most addresses of one name; more are left out, whatever its records say."""

_UNKNOWN = frozenset(
    # Systems have them or not.
    getattr(socket, name, socket.EAI_NONAME)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
)


class HostAnswer(NamedTuple):
    """What the resolver said: numeric addresses, each once, in its order; or why there are none.

    ``is_unknown``: there is no such name, as far as the resolver knows; else it could not tell.
    """

    addresses: tuple[str, ...]
    failure: str = ""
    is_unknown: bool = False


class _Question:
    """One call of ``getaddrinfo``; ``bells`` are rung under ``_lock``, when ``answer`` is set."""

    def __init__(self) -> None:
        self.answer: HostAnswer | None = None
        self.bells: set[WakeBell] = set()


_lock = threading.Lock()
_under_way: dict[str, _Question] = {}


class HostName:
    """A name, and what it stood for when it was asked for last; one thread may use it.

    Attributes:
        name: as it was given.
        addresses: of the latest answer that had some, numeric, an IPv6 one without brackets.
        failure: why the latest question brought none; empty: it brought some, or none has ended.
        is_unknown: the resolver has said that there is no such name.
        descriptor: readable when ``take`` has an answer.
    """

    def __init__(self, name: str) -> None:
        """Nothing is asked yet."""
        self.name = name
        self.addresses: tuple[str, ...] = ()
        self.failure = ""
        self.is_unknown = False
        self._bell = new_bell()
        self.descriptor = self._bell.descriptor
        self._question: _Question | None = None
        self._late_at = math.inf

    @property
    def is_asked(self) -> bool:
        """Whether an answer is out, late or not."""
        return self._question is not None

    @property
    def deadline(self) -> float:
        """When ``take`` has something to tell though no answer has come."""
        return self._late_at

    def ask(self, now: float) -> None:
        """Ask what it stands for now; ``take`` tells. Where an answer is out, that is awaited."""
        if self._question is not None:
            return
        with _lock:
            question = _under_way.get(self.name)
            if question is None:
                question = _Question()
                thread = threading.Thread(
                    target=_answer, args=(self.name, question), name="ledgermq-names", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    # The machine gives no more threads now.
                    question.answer = HostAnswer((), str(error))
                    self._bell.ring()
                else:
                    _under_way[self.name] = question
            question.bells.add(self._bell)
        self._question = question
        self._late_at = now + ANSWER_S

    def take(self, now: float) -> bool:
        """Whether there is something new to know: an answer has come, or is late."""
        question = self._question
        if question is None:
            return False
        answer = question.answer
        if answer is None:
            if now < self._late_at:
                return False
            self._late_at = math.inf
            self.failure = f"the resolver has not answered for {ANSWER_S:.0f} s"
            return True
        self._question = None
        self._late_at = math.inf
        self._bell.clear()
        if answer.addresses:
            self.addresses = answer.addresses
        self.failure, self.is_unknown = answer.failure, answer.is_unknown
        return True

    def wait(self, seconds: float) -> None:
        """Sleep until ``take`` has an answer, at most so long."""
        wait_for_descriptors((self.descriptor,), seconds)

    def close(self) -> None:
        """Wait for no answer any more."""
        with _lock:
            if self._question is not None:
                self._question.bells.discard(self._bell)
                self._question = None
            self._bell.close()


def is_name(host: str) -> bool:
    """Whether ``host`` is to be looked up: no address, in brackets or not."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


def socket_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Family and address of a numeric host, without brackets, as a socket takes them.

    With its scope, which a socket does not read out of ``fe80::1%eth0``.

    Raises:
        OSError: it is no address, or its scope is no interface of this machine.
    """
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return found[0][0], found[0][4]


def host_and_port(host: str, port: int | str) -> str:
    """Both in one text: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _answer(name: str, question: _Question) -> None:
    answer = look_up(name)
    with _lock:
        question.answer = answer
        # In a child that was forked meanwhile there is no such thread.
        if _under_way.get(name) is question:
            del _under_way[name]
        for bell in question.bells:
            bell.ring()


def look_up(name: str) -> HostAnswer:
    """What the resolver says now; blocks for as long as it likes."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return HostAnswer((), str(error.strerror), is_unknown=error.errno in _UNKNOWN)
    except OSError as error:
        return HostAnswer((), str(error))
    except ValueError:
        # A label of more than 63 characters, or an empty one; a zero byte.
        return HostAnswer((), "no name of a host", is_unknown=True)
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    return HostAnswer(tuple(addresses)[:ADDRESSES_MAX])


def _forget_questions() -> None:
    global _lock, _under_way  # noqa: PLW0603 - the parent's threads are not here
    _lock = threading.Lock()
    _under_way = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_questions)
