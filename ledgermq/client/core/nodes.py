"""Nodes of a Raft group as one link: that to the leader, whoever leads.

A ``Group`` has what a ``Link`` has, so that pipelines need not know how many nodes there are. It
keeps a session with every node. A node says in its WELCOME what it is, and in a ROLE whenever that
changes. The leader is who claims to be in the highest term of which any node knows a leader: the
claim of an older term is that of a node which was cut off from the others.

When the leader changes, the connection to the old one is closed with all that is queued in it, and
``advance`` tells that a session ended: what is not answered is to be sent again, to the next one.

Who has known no leader for a while asks all nodes again, and forgets the terms that it heard of: a
client that has lived for long must not see less than one that begins now. The group epoch
(``model/group_epoch.py``) it remembers: a group is not followed of which a mirror was promoted.

Where an address has a name, the nodes are those that it stands for (``named_nodes``): they come and
go as its records do.
"""

from __future__ import annotations

import logging
import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import zmq

from ledgermq.client.core.address import Address
from ledgermq.client.core.connection import POLLIN, Context, Part
from ledgermq.client.core.keys import ClientKeys
from ledgermq.client.core.link import NEVER, REOPEN_MS_MAX, FoundLink, Link, keys_of
from ledgermq.client.forks import OfOneProcess
from ledgermq.client.stream_connection import StreamConnection
from ledgermq.hosts.host_name import HostName
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NameUnknownError,
    NotLeaderError,
    ProtocolError,
    UnreachableError,
)
from ledgermq.model.group_epoch import epoch_of, least_term
from ledgermq.wire.header import Kind
from ledgermq.wire.session import NOT_TOLD, SpokenFor, Standing, Welcome

logger = logging.getLogger(__name__)

LOOK_S = 0.001
"""The links to the others are looked at no more often, and only when a descriptor of theirs or the
time says so: the descriptors stay readable."""

ASK_S_MIN, ASK_S_MAX = 2.0, 10.0
"""After so long without a leader the nodes are asked again, at first, and at last; up to twice as
long by chance, so that not all clients ask at once."""

PATIENT_MS = 10_000
"""While a node leads, an address of a name at which nobody answers is tried so seldom: it may be
one of a family that the node does not listen at."""

_KIND = slice(4, 5)
_ROLE = bytes([Kind.ROLE])

LOOK_UP_S, LOOK_UP_S_MAX = 1.0, 10.0
"""Between an answer and the next question, where something has failed; at most, where it is the
resolver that fails: doubled each time."""

MakeLink = Callable[[Address], Link]


class NamedNodes:
    """The links to all nodes that one name stands for, as it is asked for anew.

    It is asked for in the background (``hosts.host_name``): at first, soon after a connection to
    one of its nodes has ended or nobody leads, and else every ``resolve_s`` seconds of its address.
    An address that is new gets a link. One that is gone keeps its link for as long as the session
    stands: resolvers leave addresses out, and what works is not to end for it. Where the name
    cannot be resolved any more its last addresses stay.

    Attributes:
        error: why it stands for nothing, where it never did, and the resolver knows no such name.
            It is asked for again all the same.
        descriptor: readable when ``look`` has an answer.
    """

    def __init__(self, place: Address, make: MakeLink) -> None:
        """Nothing is asked yet.

        Args:
            make: the link to one of the nodes.
        """
        self.error: LedgerError | None = None
        self._place = place
        self._make = make
        self._host = HostName(place.name)
        self.descriptor = self._host.descriptor
        self._ask_at = 0.0
        self._answered_at = 0.0
        self._pause_s = LOOK_UP_S
        self._failure = ""
        self._owner = os.getpid()

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it stood for when that was known last."""
        return self._host.addresses

    @property
    def deadline(self) -> float:
        """When ``look`` has something to do that no descriptor tells of."""
        return min(self._ask_at, self._host.deadline)

    def look(self, now: float) -> bool:
        """Take an answer, and ask when it is time; true when ``addresses`` may be others."""
        if os.getpid() != self._owner:
            # As a link says: what it would connect to has the parent's messages to send.
            self._ask_at = NEVER
            self.error = ConfigError("a process that was forked makes clients of its own")
            return False
        host = self._host
        has_news = host.take(now)
        if has_news:
            self._note(now)
        if now >= self._ask_at:
            self._ask_at = NEVER
            # Who asks meanwhile gets the fresh answer.
            self.error = None
            host.ask(now)
        return has_news

    def hurry(self, now: float) -> None:
        """Ask soon: something has failed that another address may mend."""
        if not self._host.is_asked:
            self._ask_at = min(self._ask_at, max(now, self._answered_at + LOOK_UP_S))

    def link_to(self, address: str) -> Link:
        """A link to the node at one of the addresses."""
        return self._make(self._place.at(address))

    def says(self) -> str:
        """What the operator should know of a name that stands for nothing."""
        return f"{self._place.consume}: {self._failure or 'name is being looked up'}"

    def close(self) -> None:
        """Ask no more."""
        self._host.close()

    def _note(self, now: float) -> None:
        host = self._host
        failure = f"name not resolved: {host.failure}" if host.failure else ""
        if failure != self._failure:
            self._failure = failure
            if failure:
                logger.warning(
                    "%s: name=%s addresses_kept=%d", failure, host.name, len(host.addresses)
                )
            else:
                logger.info("name resolved: name=%s", host.name)
        if host.is_asked:
            # It is late only.
            return
        self._answered_at = now
        if not failure:
            self._pause_s = LOOK_UP_S
            self._ask_at = now + self._place.resolve_s
            return
        self._ask_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LOOK_UP_S_MAX)
        if host.is_unknown and not host.addresses:
            self.error = NameUnknownError(
                f"name of a node not resolved: {host.failure}", name=host.name
            )


class _Member:
    """One node; ``standing`` is set exactly while its session stands.

    ``is_asked``: it was asked what only the leader is asked otherwise, in this session. ``names``:
    what it was found by, and ``address`` what that stood for; ``has_stood``: its session did when
    that was looked at last.
    """

    __slots__ = (
        "_greeting",
        "address",
        "has_stood",
        "is_asked",
        "link",
        "names",
        "standing",
    )

    def __init__(self, link: Link, names: NamedNodes | None = None, address: str = "") -> None:
        self.link = link
        self.names = names
        self.address = address
        self.has_stood = False
        self.is_asked = False
        self.standing: Standing | None = None
        self._greeting: Welcome | None = None

    def look(self, now: float, answers: deque[list[Part]]) -> bool:
        """Take what the node tells, and look after its connection; true when a question got lost.

        Args:
            answers: where its answers are put.
        """
        link = self.link
        has_ended = False
        try:
            while (parts := link.receive()) is not None:
                if parts[0][_KIND] == _ROLE:
                    self.note_greeting()
                    self.take_role(parts)
                elif self.is_asked:
                    answers.append(parts)
        except ProtocolError as error:
            has_ended = link.lose(now, str(error))
        has_ended = link.advance(now) or has_ended
        self.note_greeting()
        if has_ended and self.is_asked:
            self.is_asked = False
            return True
        return False

    def note_greeting(self) -> None:
        """Take what the node said when its session began, once."""
        welcome = self.link.welcome
        if welcome is not self._greeting:
            self._greeting = welcome
            self.standing = welcome.standing if welcome is not None else None

    def take_role(self, parts: list[Part]) -> None:
        """Take a ROLE.

        Raises:
            ProtocolError: it is none.
        """
        self.standing = self.link.take_role(parts)

    def says(self) -> str:
        """What the operator should know of this node when none leads."""
        link, standing = self.link, self.standing
        if link.failure is not None:
            text = str(link.failure)
        elif standing is None:
            text = f"no answer ({link.ended_by})" if link.ended_by else "no answer"
        else:
            leader = f"leader {standing.leader}" if standing.leader else "no leader known"
            text = f"{standing.role} in term {standing.term}, {leader}"
        return f"{link.endpoint}: {text}"


class Group(OfOneProcess):
    """The link to the leader of several nodes; see the module.

    Invariants: ``welcome`` is that of ``_leader``'s session, and both are set or neither is;
    ``_term`` decreases only when no session stands, or the nodes are asked again; ``_ask_at`` is
    never exactly while a leader is known.

    Attributes:
        welcome: what the leader told us, ``None`` while no leader is known.
        last_welcome: the latest one, also between leaders.
        changes: how often a leader was found.
        stays_readable: of the leader's link; see ``NodeConnection``.
        position: see ``Link``.
    """

    def __init__(self, links: Sequence[Link], named: Sequence[NamedNodes] = ()) -> None:
        """Links to known nodes, and names that stand for more.

        Nothing is asked and connected before the first ``advance``.
        """
        self.welcome: Welcome | None = None
        self.last_welcome: Welcome | None = None
        self.changes = 0
        self.stays_readable = False
        self.stream: StreamConnection | None = None
        self.position = NOT_TOLD
        # Answers of several nodes are told apart by what they answer.
        self._ids = count(1)
        for link in links:
            link.share_ids(self._ids)
        self._members = [_Member(link) for link in links]
        self._named = tuple(named)
        self._has_answered = False
        self._is_of_one_name = not links and len(named) == 1
        self._generation_of_left = 0
        self._leader: _Member | None = None
        self._answers: deque[list[Part]] = deque()
        self._term = 0
        self._led_term = 0
        self._epoch = 0
        self._look_at = 0.0
        self._due_at = NEVER
        self._others: list[tuple[int, int]] = []
        self._watched: tuple[_Member | None, int] = (None, -1)
        self._has_news = False
        self._ask_s = ASK_S_MIN
        self._ask_at = NEVER
        self._left: LedgerError | None = None
        self._belong()

    @property
    def failure(self) -> LedgerError | None:
        """Why no session can stand with any of the nodes, if that is known; see ``Link``."""
        if self._left is not None:
            return self._left
        found: list[LedgerError] = []
        for member in self._members:
            if member.link.failure is None:
                return None
            found.append(member.link.failure)
        for names in self._named:
            if names.addresses:
                continue
            if names.error is None:
                return None
            found.append(names.error)
        if len(found) < 2:
            return found[0] if found else None
        # What stays as it is says more than who may only not have begun yet.
        worst = min(found, key=lambda error: error.retriable)
        if not isinstance(worst, UnreachableError):
            return worst
        others = [str(error) for error in found if error is not worst]
        return type(worst)(worst.message, **worst.details, others=others)

    @property
    def generation(self) -> int:
        """Grows whenever ``descriptors`` are others."""
        total = self._generation_of_left
        for member in self._members:
            total += member.link.generation
        return total

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors of all links and names; see ``Link.descriptors``."""
        links = tuple(one for member in self._members for one in member.link.descriptors)
        return links + tuple(names.descriptor for names in self._named)

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        if self._has_news or self._answers:
            return 0.0
        return NEVER if self._due_at == NEVER else max(self._look_at, self._due_at)

    def next_id(self) -> int:
        """A request id that no link has used."""
        return next(self._ids)

    def send_to(self, node: str, parts: Sequence[bytes]) -> bool:
        """Hand a question to the member ``node``; false when it cannot be asked now.

        Its answer comes out of ``receive``. When its session ends, ``advance`` says so as it does
        of the leader's.
        """
        for member in self._members:
            welcome = member.link.welcome
            if welcome is not None and welcome.node == node:
                member.is_asked = True
                # Sending may have swallowed the descriptor's edge.
                self._has_news = True
                return member.link.send(parts)
        return False

    def send(self, parts: Sequence[bytes]) -> bool:
        """Hand a message for the leader to ZeroMQ; false when it takes none."""
        assert self._leader is not None
        return self._leader.link.send(parts)

    def receive(self) -> list[Part] | None:
        """The parts of the leader's next message that is not about the session itself."""
        if self._answers:
            return self._answers.popleft()
        leader = self._leader
        if leader is None:
            return None
        while (parts := leader.link.receive()) is not None:
            if parts[0][_KIND] != _ROLE:
                return parts
            leader.take_role(parts)
            self._note_position(leader.link)
            self._has_news = True
        return None

    def advance(self, now: float) -> bool:
        """Look after all links, and find the leader; true when the old leader's session ended."""
        has_ended = False
        leader = self._leader
        if leader is not None and leader.link.advance(now):
            self._forget_leader()
            has_ended = True
        if (
            self._has_news
            or self._leader is None
            or (now >= self._look_at and (now >= self._due_at or zmq.zmq_poll(self._others, 0)))
        ):
            self._look_at = now + LOOK_S
            if self._named:
                self._look_at_names(now)
            for member in self._members:
                if member is not self._leader:
                    has_ended = member.look(now, self._answers) or has_ended
            has_ended = self._choose(now) or has_ended
            if self._leader is None:
                self._await_leader(now)
            self._watch_others()
        return has_ended

    def lose(self, now: float) -> bool:
        """Give up the connection to the leader; true when there was one."""
        leader = self._leader
        if leader is None:
            return False
        leader.link.lose(now)
        self._forget_leader()
        return True

    def close(self) -> None:
        """Say goodbye to all nodes, and close the sockets for good."""
        for member in self._members:
            member.link.close()
            member.note_greeting()
        for names in self._named:
            names.close()
        self._named = ()
        self._leader = self.welcome = self.stream = None

    def _leave(self) -> None:
        """Leave all to the parent: no session can stand any more."""
        self._left = self._left_error()
        self._leader = self.welcome = self.stream = None
        self._answers.clear()

    def unreachable(self) -> LedgerError:
        """What to tell who waited for a leader in vain; nothing was sent."""
        links = [member.link for member in self._members]
        if links and all(link.is_locked_out for link in links):
            return links[0].unreachable()
        nodes = [member.says() for member in self._members]
        nodes += [names.says() for names in self._named if not names.addresses]
        return self.failure or NotLeaderError(
            "no node leads, as far as can be seen from here", nodes=nodes
        )

    def _look_at_names(self, now: float) -> None:
        """Ask and take what names stand for; let come and go whom they are for now."""
        for member in self._members:
            stands = member.link.welcome is not None
            if member.names is not None and member.has_stood and not stands:
                member.names.hurry(now)
            member.has_stood = stands
        for names in self._named:
            if names.look(now):
                self._follow(names)
        for member in self._members:
            names_of = member.names
            if (
                names_of is not None
                and not member.has_stood
                and member.address not in names_of.addresses
            ):
                member.link.close()
                self._members = [other for other in self._members if other is not member]
                self._generation_of_left += member.link.generation + 1

    def _follow(self, names: NamedNodes) -> None:
        """Have a link to each address of a name."""
        known = {member.address for member in self._members if member.names is names}
        for address in names.addresses:
            if address not in known:
                link = names.link_to(address)
                link.share_ids(self._ids)
                if self._has_answered:
                    link.trust()
                link.take_time(ms_max=REOPEN_MS_MAX if self._leader is None else PATIENT_MS)
                self._members.append(_Member(link, names, address))

    def _pace(self, ms_max: int) -> None:
        """Try addresses of names at which nobody answers so often, at least."""
        for member in self._members:
            if member.names is not None:
                member.link.take_time(ms_max=ms_max)

    def _watch_others(self) -> None:
        """Know when to look next: by the descriptors of all but the leader, and by the time."""
        due_at = self._ask_at
        for member in self._members:
            due_at = min(due_at, member.link.deadline)
        for names in self._named:
            due_at = min(due_at, names.deadline)
        self._due_at = due_at
        watched = self._leader, self.generation
        if watched != self._watched:
            self._watched = watched
            self._others = [
                (descriptor, POLLIN)
                for member in self._members
                if member is not self._leader
                for descriptor in member.link.descriptors
            ] + [(names.descriptor, POLLIN) for names in self._named]

    def _forget_leader(self) -> None:
        """After the end of its session."""
        assert self._leader is not None
        self._leader.note_greeting()
        self._leader = self.welcome = self.stream = None
        self._has_news = True
        self._pace(REOPEN_MS_MAX)

    def _await_leader(self, now: float) -> None:
        """Have all nodes say again what they are, when none has led for long enough."""
        if self._ask_at == NEVER:
            self._ask_s = ASK_S_MIN
        elif now < self._ask_at:
            return
        else:
            self._ask_s = min(2 * self._ask_s, ASK_S_MAX)
            if self.failure is None:
                self._ask_again(now)
        self._ask_at = now + self._ask_s * random.uniform(1.0, 2.0)  # noqa: S311 - no secret

    def _ask_again(self, now: float) -> None:
        self._term = self._led_term = least_term(self._epoch)
        for names in self._named:
            names.hurry(now)
        for member in self._members:
            # A broker forgets with the old session what was asked in it.
            if not member.is_asked:
                member.link.ask_again(now)

    def _note_position(self, link: Link) -> None:
        if link.position != NOT_TOLD:
            self.position = link.position

    def _choose(self, now: float) -> bool:
        """Take the leader that the nodes tell of; true when another one led before."""
        self._has_news = False
        known = [member.standing for member in self._members if member.standing is not None]
        if known and not self._has_answered:
            # Whoever is away from now on is waited for, also where it comes back elsewhere.
            self._has_answered = True
            for member in self._members:
                member.link.trust()
        if not known:
            # A group that was made anew begins with low terms again.
            self._term = least_term(self._epoch)
        terms = [standing.term for standing in known if standing.leads or standing.leader]
        self._term = max([self._term, *terms])
        # Who was told of a promoted group never goes back to the one that it was made of.
        self._epoch = epoch_of(self._term)
        chosen: _Member | None = None
        for member in self._members:
            standing = member.standing
            if standing is not None and standing.leads and standing.term >= self._term:
                chosen = member
        if chosen is None and self._is_of_one_name and len(self._members) == 1 and known:
            # One node by name is as one by address: it is asked whatever it is.
            (chosen,) = self._members
        old = self._leader
        led_term, self._led_term = self._led_term, self._term
        # Between two terms that follow one another nobody else can have led.
        if chosen is old and (chosen is None or self._term <= led_term + 1):
            return False
        if old is not None:
            old.link.lose(now)
            self._forget_leader()
            if chosen is old:
                # What it did not answer may be behind what another leader has stored since.
                return True
        if chosen is not None:
            self._ask_at = NEVER
            self._leader = chosen
            self.welcome = self.last_welcome = chosen.link.welcome
            self.stays_readable = chosen.link.stays_readable
            self.stream = chosen.link.stream
            self.changes += 1
            self._note_position(chosen.link)
            self._pace(PATIENT_MS)
        return old is not None


AnyLink = Link | Group
"""What pipelines drive: the link to one node, or to the leader of several."""


def broker_link(
    context: Context,
    places: Sequence[Address],
    *,
    client: str,
    group: str = "",
    speaks_for: SpokenFor | None = None,
    is_watchful: bool = True,
) -> AnyLink:
    """The link to the broker of the only node, or of the leader.

    Args:
        group: the subscription group that its pulls are for; empty for none.
        speaks_for: see ``Link``.
        is_watchful: it fails at once where nobody is there at first; see ``link.py``.
    """

    def to(place: Address, keys: ClientKeys | None) -> Link:
        return Link(
            context,
            place.consume,
            client=client,
            group=group,
            keys=keys,
            speaks_for=speaks_for,
            is_watchful=is_watchful,
        )

    return to(places[0], keys_of(places[0])) if is_one_node(places) else _group(places, to)


def writer_group(context: Context, places: Sequence[Address], *, client: str) -> Group:
    """The link to the writer of the leader; where the writers are is asked when it is not known."""

    def to(place: Address, keys: ClientKeys | None) -> Link:
        if place.produce:
            return Link(context, place.produce, client=client, keys=keys, is_writers=True)
        return FoundLink(context, place, client=client, keys=keys)

    return _group(places, to)


def is_one_node(places: Sequence[Address]) -> bool:
    """Whether they are one node for good: a name may come to stand for more."""
    return len(places) == 1 and not places[0].name


def _group(places: Sequence[Address], to: Callable[..., Link]) -> Group:
    """The links to addresses now, and to what names stand for when that is known."""
    links, named = [], []
    for place in places:
        keys = keys_of(place)
        if place.name:
            named.append(NamedNodes(place, partial(to, keys=keys)))
        else:
            links.append(to(place, keys))
    return Group(links, named)
