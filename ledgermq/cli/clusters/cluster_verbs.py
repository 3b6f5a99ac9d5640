"""``ledgermq cluster init|invite|join|remove|leave|list|status``: a cluster of groups.

``docs/operating/several-groups.md`` tells how they are used. Exit status: 0 done; 1 refused, or the
command line; 2 the root key's file.

Exit status: 0 done; 1 refused, the command line, or something was left when the time was over.

The home is asked for nothing of it (docs/decisions/0087).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ledgermq.cli.arguments import NAME, takes
from ledgermq.cli.node_verbs import asks, confirm
from ledgermq.cli.output import print_table, tell
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import PERMIT_WRITE, all_pages, ask, asking
from ledgermq.client.core.requests import Steps
from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    NotLeaderError,
    TimedOutError,
    TopicUnknownError,
)
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.json_objects import decoded, encoded
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.sessions.keys.root_key import RootKey, new_root_key, read_root_key, write_root_key
from ledgermq.verbs.answers import integer, rows
from ledgermq.verbs.clusters import ClusterView, OwnTopic, ShowRemains
from ledgermq.verbs.dead_letters import ShowDeadLetters
from ledgermq.verbs.groups import GroupRow, ListGroups, ShowLag
from ledgermq.verbs.topics import AlterTopic


class Remains(NamedTuple):
    """What keeps a group from being drained.

    Attributes:
        group: the group of the cluster.
        open: how many topics take messages.
        own: some of them that are the group's own.
        is_known: what takes messages knows the topics as they are.
        timers, delayed, half_messages: messages that wait for a time, and for their transaction.
        packs: parts of batches of Spark's sink that are committed, and on their way to topics.
        lags: messages that consumer groups have not consumed, by group.
        dead_letters: those that were not replayed, by consumer group.
    """

    group: str
    open: int
    own: list[OwnTopic]
    is_known: bool
    timers: int
    delayed: int
    half_messages: int
    packs: int
    lags: Mapping[str, int]
    dead_letters: Mapping[str, int]

    @property
    def reasons(self) -> list[str]:
        """Each as a text; none: the group is drained."""
        counts = {
            "topics that take messages": self.open,
            "timers": self.timers,
            "delayed messages": self.delayed,
            "messages of open transactions": self.half_messages,
            "parts of batches of a sink": self.packs,
        }
        found = [f"{count:,} {what}" for what, count in counts.items() if count]
        found += [f"{count:,} messages for {group}" for group, count in self.lags.items()]
        found += [
            f"{count:,} dead letters of {group}" for group, count in self.dead_letters.items()
        ]
        return found if found or self.is_known else ["a writer that does not know its topics yet"]


def remains() -> Steps[Remains]:
    """What is left in the group that is asked.

    Raises:
        NoPermissionError: this client is no admin there.
        BusyError: it cannot be told at this moment.
    """
    told = yield from asking(ShowRemains())
    sinks = yield from ask("sinks")
    groups = yield from all_pages(ListGroups, lambda row: row.group)
    lags, dead_letters = {}, {}
    for group in (one for one in groups if not one.system):
        lags[group.group] = yield from _lag(group)
        queues = yield from asking(ShowDeadLetters(group.group))
        dead_letters[group.group] = sum(one.end - one.begin - one.replayed_count for one in queues)
    return Remains(
        *told,
        sum(rows(sinks, "sinks", lambda row: integer(row, "packs_left"))),
        {group: lag for group, lag in lags.items() if lag},
        {group: count for group, count in dead_letters.items() if count},
    )


def close_topic(own: OwnTopic) -> Steps[None]:
    """A topic of the group's own takes no messages any more.

    Raises:
        NoPermissionError: this client is no admin there.
    """
    yield from asking(AlterTopic(own.topic, perm=own.perm & ~PERMIT_WRITE))


def _lag(group: GroupRow) -> Steps[int]:
    """In all topics that it has consumed, and in that of what it has sent back."""
    found = yield from asking(ShowLag(group.group))
    own = retry_topic(group.group)
    if own not in group.topics:
        with suppress(TopicUnknownError):
            found += yield from asking(ShowLag(group.group, own))
    return sum(one.lag for one in found)


DRAIN_LOOK_S = 1.0

LOOKS = 2
"""Looks in a row at which nothing is left: what was taken in the moment in which the topics were
closed may come behind the first look."""

WAIT_S = 3_600


def add_drain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``drain``."""
    drain = commands.add_parser(
        "drain",
        help="close this group for producers, and have it leave once all is consumed",
        description="Is asked of the group, which is not the home. It leaves the cluster when no"
        " consumer group lags, and no timer, delayed message, open transaction, batch of a sink or"
        " dead letter is left in it. What was broken off may be asked again.",
    )
    takes(drain, "group GROUP", "the group, so that it is no other one")
    takes(drain, "--home ADDRESS", "nodes of the home", required=True)
    takes(
        drain,
        "--wait SECONDS",
        f"then say what is left, and leave it closed (default: {WAIT_S:,})",
        default=WAIT_S,
    )
    takes(
        drain,
        "--undo",
        "open its share of topics over groups; its own topics are opened by `topic alter`",
    )
    takes(drain, "--leave-dead-letters", "they are no reason to wait")
    takes(drain, "--yes", "do not ask")
    asks(drain, connect_broker, _drain)


def _drain(broker: Broker, arguments: argparse.Namespace) -> int:
    admin, group = ClusterAdmin(broker), arguments.group
    found = admin.cluster()
    own = admin.own_name() if found is None else found.group
    if own != group:
        raise ConfigError("ask the group that is to be drained: --address", group=group, asked=own)
    if found is None:
        return _is_gone(arguments)
    if found.home == group and not arguments.undo:
        raise ConfigError("the home itself is not drained: `ledgermq cluster move-home` first")
    confirm(arguments, f"{'open' if arguments.undo else 'drain'} the group {group}")
    with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as link:
        home = ClusterAdmin(link)
        if arguments.undo:
            _set_phase(home, group, is_open=True)
            return tell(arguments, {"opened": group}, f"{group}: open")
        _empty(broker, home, arguments)
        remove_group(home, group)
    leave_cluster(admin)
    text = f"{group} is drained, and belongs to no cluster any more"
    return tell(arguments, {"drained": group, "before": False}, text)


def _is_gone(arguments: argparse.Namespace) -> int:
    """The group belongs to no cluster: as it does when a drain is asked for again that was done."""
    group = arguments.group
    if arguments.undo:
        raise ConfigError("group belongs to no cluster: it has no share to open", group=group)
    with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as link:
        if _is_in(ClusterAdmin(link), group):
            raise ConfigError(
                "group belongs to no cluster, but the home has it in its list: `ledgermq cluster"
                " remove`, or `ledgermq cluster join` first",
                group=group,
            )
    text = f"{group} belongs to no cluster: nothing is left to do"
    return tell(arguments, {"drained": group, "before": True}, text)


def remove_group(home: ClusterAdmin, group: str) -> None:
    """Have no such group in the cluster of ``home``, which may have none already.

    Raises:
        LedgerError: as from ``ClusterAdmin.remove_group``.
    """
    if not _is_in(home, group):
        # This was broken off just before the group left.
        return
    try:
        home.remove_group(group)
    except ConfigError:
        # It is asked again when an answer is lost, and then of a home that has done it.
        if _is_in(home, group):
            raise


def leave_cluster(admin: ClusterAdmin) -> None:
    """Have the group belong to no cluster, also where the answer to that is lost.

    Raises:
        LedgerError: as from ``ClusterAdmin.leave``.
    """
    try:
        admin.leave()
    except ConfigError:
        if admin.cluster() is not None:
            raise


def _set_phase(home: ClusterAdmin, group: str, *, is_open: bool) -> None:
    while home.set_group_phase(group, is_open=is_open).left:
        pass


def _is_in(home: ClusterAdmin, group: str) -> bool:
    found = home.cluster()
    return found is not None and any(one.group == group for one in found.groups)


def _empty(broker: Broker, home: ClusterAdmin, arguments: argparse.Namespace) -> None:
    """Close what takes messages, and wait until nothing is left."""
    deadline = time.monotonic() + arguments.wait
    looks, told = 0, ""
    while True:
        if _is_in(home, arguments.group):
            _set_phase(home, arguments.group, is_open=False)
        reasons = _reasons(broker, arguments)
        looks = 0 if reasons else looks + 1
        if looks == LOOKS:
            return
        text = ", ".join(reasons)
        if time.monotonic() >= deadline:
            raise TimedOutError(
                "group takes nothing any more, and is not drained yet: ask again, or --undo",
                left=text[:1_000],
                waited_s=arguments.wait,
            )
        if text and text != told:
            told = text
            print(f"left: {text}", file=sys.stderr)
        time.sleep(DRAIN_LOOK_S)


def _reasons(broker: Broker, arguments: argparse.Namespace) -> list[str]:
    try:
        left: Remains = broker.run(remains())
    except (BusyError, NotLeaderError) as error:
        return [str(error)]
    for topic in left.own:
        # One may be gone by now, or be the cluster's: the next look says so.
        with suppress(TopicUnknownError, ConfigError, BusyError, NotLeaderError):
            broker.run(close_topic(topic))
    if arguments.leave_dead_letters:
        left = left._replace(dead_letters={})
    return left.reasons


LOOK_AGAIN_S = 0.1


def add_move_home(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``move-home``."""
    move = commands.add_parser(
        "move-home",
        help="make another group of the cluster its home",
        description="Is asked of the home, which hands its place over to a group that has all of"
        " its rows. With --force it is asked of the group that is to be the home, when the one"
        " before it is lost: what only that one had is lost with it.",
    )
    takes(move, "group GROUP", "the group that is to be the home")
    takes(move, "--force", "the home is lost: needs --root-key")
    takes(move, "--root-key FILE", "what `cluster init` wrote, for --force")
    takes(move, "--yes", "do not ask")
    asks(move, connect_broker, _move)


def _move(broker: Broker, arguments: argparse.Namespace) -> int:
    if arguments.force != (arguments.root_key is not None):
        raise ConfigError("--force and --root-key FILE belong together: the root key certifies")
    admin = ClusterAdmin(broker)
    found = admin.cluster()
    if found is None:
        raise ConfigError("group belongs to no cluster")
    moved = _force(admin, found, arguments) if arguments.force else _hand_over(admin, arguments)
    document = {"cluster": moved.cluster, "home": moved.home, "epoch": moved.epoch}
    return tell(arguments, document, f"{moved.home} is the home of cluster {moved.cluster}")


def _hand_over(admin: ClusterAdmin, arguments: argparse.Namespace) -> ClusterView:
    """What the home says once the next one has told it that it goes on."""
    group = arguments.group
    confirm(arguments, f"make {group} the home of the cluster")
    deadline = time.monotonic() + arguments.timeout
    found = admin.hand_over(group)
    while found.rows_rank != found.rank:
        if time.monotonic() >= deadline:
            raise TimedOutError(
                "the home has handed its place over, and the next one has not told yet that it goes"
                " on: see `ledgermq cluster status` there",
                home=found.home,
                failure=found.failure,
                waited_s=arguments.timeout,
            )
        time.sleep(LOOK_AGAIN_S)
        found = admin.cluster() or found
    return found


def _force(admin: ClusterAdmin, found: ClusterView, arguments: argparse.Namespace) -> ClusterView:
    path: Path = arguments.root_key
    root, own = read_root_key(path), admin.own_key()
    if root is None:
        raise ConfigError("root key does not exist", file=str(path))
    if root.cluster != found.cluster or encoded(SigningKey(root.secret).public) != found.root:
        raise ConfigError(
            "root key is another cluster's",
            file=str(path),
            cluster=root.cluster,
            this_cluster=found.cluster,
        )
    if own.group != arguments.group:
        raise ConfigError(
            "ask the group that is to be the home: --address",
            group=arguments.group,
            asked=own.group,
        )
    if found.is_home and found.by_root and (root.epoch, root.home) == (found.epoch, own.group):
        return found
    confirm(arguments, f"make {own.group} the home, and lose what the one before it had alone")
    signed = RootKey(root.cluster, root.secret, max(root.epoch, found.epoch) + 1, own.group)
    key = decoded(own.key, size_max=PUBLIC_SIZE)
    wanted = Certificate(root.cluster, signed.epoch, True, own.group, key, found.number, b"")
    # Before anybody has the certificate: no other home is ever certified with this epoch.
    write_root_key(path, signed)
    return admin.take_over([encoded(certify(SigningKey(root.secret), wanted).signed)])


TICKET_SIZE_MAX = 256 * 1024
NONE = (
    "the group belongs to no cluster of several groups: ledgermq cluster init, or join;"
    " its own members: ledgermq raft status"
)

Answer = Callable[[Broker, argparse.Namespace], int]


class Ticket(NamedTuple):
    """What a group has to know of a cluster to join it; nothing in it is secret."""

    cluster: str
    root: str
    chain: list[str]
    nodes: list[str]
    group: str


def add_clusters(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add what is about several groups."""
    init = _verb(
        commands,
        "init",
        "begin a cluster of groups, with this one as its home",
        _init,
        "Makes the root key of the cluster, with which its home is certified. Keep the file away"
        " from the nodes, and where it is not lost: with it another group is made the home when"
        " this one is lost.",
    )
    takes(init, "cluster CLUSTER", "name of the cluster")
    takes(init, "--root-key FILE", "where the root key is written", required=True)
    invite = _verb(
        commands,
        "invite",
        "tell the home of a group, and print what that needs to join",
        _invite,
        "Is asked of the home. What it prints is given to `ledgermq cluster join --ticket` on a"
        " host of the other group; nothing in it is secret.",
    )
    takes(invite, "group GROUP", "node.broker_name of the other group")
    join = _verb(
        commands,
        "join",
        "have this group belong to a cluster of groups",
        _join,
        "Is asked of the group that joins. With --home the home is told of it as well, which needs"
        " an admin's rights there.",
    )
    how = join.add_mutually_exclusive_group(required=True)
    takes(how, "--home ADDRESS", "nodes of the home, as --address has them")
    takes(how, "--ticket FILE", "what `cluster invite` printed")
    for verb, what in ((init, "this group"), (invite, "the other group"), (join, "this group")):
        takes(
            verb,
            "--nodes LIST",
            f"consume sockets of all members of {what}, as tcp://10.0.0.1:10912,…"
            + (" (default: those of --address)" if verb is not invite else ""),
        )
    for verb in (invite, join):
        takes(verb, "--user USER", "user of the home by which the group's nodes are known")
    remove = _verb(
        commands, "remove", "have a group in the cluster no more", _remove, "Is asked of the home."
    )
    takes(remove, "group GROUP")
    leave = _verb(
        commands,
        "leave",
        "have this group belong to no cluster",
        _leave,
        "Is asked of the group that leaves. A home leaves as the last one.",
    )
    takes(leave, "--home ADDRESS", "nodes of the home, to tell it as well")
    for verb in (remove, leave):
        takes(verb, "--yes", "do not ask")
    add_move_home(commands)
    add_drain(commands)
    _verb(commands, "list", "show the groups of the cluster", _list, "As the node knows them.")
    _verb(
        commands,
        "status",
        "show who the home is, and how far this group has its rows",
        _status,
        "As the node knows it.",
    )


def _verb(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    answer: Answer,
    more: str,
) -> argparse.ArgumentParser:
    description = f"{text[0].upper()}{text[1:]}. {more}"
    return asks(
        commands.add_parser(name, help=text, description=description), connect_broker, answer
    )


def _init(broker: Broker, arguments: argparse.Namespace) -> int:
    admin, nodes = ClusterAdmin(broker), _nodes(arguments)
    own, known = admin.own_key(), admin.cluster()
    if known is not None and known.cluster != arguments.cluster:
        raise ConfigError("group belongs to another cluster", cluster=known.cluster)
    root = _root_key(arguments.root_key, arguments.cluster, own.group)
    signer = SigningKey(root.secret)
    key = decoded(own.key, size_max=PUBLIC_SIZE)
    wanted = Certificate(root.cluster, root.epoch, True, own.group, key, 0, b"")
    chain = [encoded(certify(signer, wanted).signed)]
    # Before the cluster begins: without its key nobody could ever move it.
    write_root_key(arguments.root_key, root)
    found = admin.begin(root.cluster, root=encoded(signer.public), chain=chain, nodes=nodes)
    document = {"cluster": found.cluster, "home": found.home, "root_key": str(arguments.root_key)}
    lines = (
        f"cluster {found.cluster} begins, and {found.home} is its home",
        f"keep {arguments.root_key}: with it another group is made the home when this one is lost",
    )
    return tell(arguments, document, "\n".join(lines))


def _root_key(path: Path, cluster: str, home: str) -> RootKey:
    """The key in the file, where the same was asked for before; else a new one."""
    found = read_root_key(path)
    if found is None:
        return new_root_key(cluster)._replace(epoch=1, home=home)
    if (found.cluster, found.epoch, found.home) != (cluster, 1, home):
        raise ConfigError(
            "root key is not overwritten, and it is another cluster's or has certified another"
            " home: name another file",
            file=str(path),
            cluster=found.cluster,
            epoch=found.epoch,
            home=found.home,
        )
    return found


def _invite(broker: Broker, arguments: argparse.Namespace) -> int:
    if not arguments.nodes:
        raise ConfigError("name the consume sockets of all members of the group: --nodes LIST")
    ticket = _ticket_of(ClusterAdmin(broker), arguments.group, arguments)
    print(json.dumps(ticket._asdict()))
    return 0


def _ticket_of(home: ClusterAdmin, group: str, arguments: argparse.Namespace) -> Ticket:
    found = home.set_group(group, _nodes(arguments), user=arguments.user or None)
    return Ticket(found.cluster, found.root, [*found.chain], [*found.home_nodes], group)


def _join(broker: Broker, arguments: argparse.Namespace) -> int:
    admin = ClusterAdmin(broker)
    if arguments.ticket is not None:
        ticket, own = _read_ticket(arguments.ticket), admin.own_name()
        if ticket.group != own:
            raise ConfigError("ticket is for another group", group=ticket.group, this_group=own)
    else:
        with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as home:
            ticket = _ticket_of(ClusterAdmin(home), admin.own_name(), arguments)
    found = admin.join(ticket.cluster, root=ticket.root, chain=ticket.chain, nodes=ticket.nodes)
    document = {"cluster": found.cluster, "group": found.group, "home": found.home}
    text = f"{found.group} belongs to cluster {found.cluster}, whose home is {found.home}"
    return tell(arguments, document, text)


def _read_ticket(path: Path) -> Ticket:
    try:
        with path.open("rb") as file:
            content = file.read(TICKET_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError("ticket not read", file=str(path), reason=error.strerror) from error
    try:
        if len(content) > TICKET_SIZE_MAX:
            raise ValueError("too large")
        found = json.loads(content)
        texts = [str(found[name]) for name in ("cluster", "root", "group")]
        lists = [[str(one) for one in found[name]] for name in ("chain", "nodes")]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "not a ticket, as `ledgermq cluster invite` prints it", file=str(path)
        ) from error
    return Ticket(texts[0], texts[1], lists[0], lists[1], texts[2])


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    confirm(arguments, f"remove the group {arguments.group} from the cluster")
    ClusterAdmin(broker).remove_group(arguments.group)
    return tell(arguments, {"removed": arguments.group}, f"{arguments.group}: removed")


def _leave(broker: Broker, arguments: argparse.Namespace) -> int:
    admin = ClusterAdmin(broker)
    known = admin.cluster()
    group = admin.own_name() if known is None else known.group
    if known is None and not arguments.home:
        return tell(arguments, {"left": None, "group": group}, NONE)
    of = "its cluster" if known is None else f"the cluster {known.cluster}"
    confirm(arguments, f"have {group} leave {of}")
    if arguments.home:
        with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as home:
            remove_group(ClusterAdmin(home), group)
    if known is not None:
        leave_cluster(admin)
    document = {"left": None if known is None else known.cluster, "group": group}
    text = f"{group} belongs to no cluster any more"
    if not (arguments.home or known is None or known.is_home):
        text += f"; tell the home: ledgermq cluster remove {group}"
    return tell(arguments, document, text)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    found = ClusterAdmin(broker).cluster()
    if found is None:
        return tell(arguments, {"cluster": None, "groups": []}, NONE)
    home = found.home
    groups = [{**one._asdict(), "is_home": one.group == home} for one in found.groups]

    def show() -> None:
        table = (
            (one.group, "home" if one.group == home else "-", " ".join(one.nodes), one.user or "-")
            for one in found.groups
        )
        print_table(("group", "is", "nodes", "user"), table)

    document = {"cluster": found.cluster, "groups": groups}
    return tell(arguments, document, show if groups else "nothing is known of the groups yet")


def _status(broker: Broker, arguments: argparse.Namespace) -> int:
    found = ClusterAdmin(broker).cluster()
    if found is None:
        return tell(arguments, {"cluster": None}, NONE)
    document = {**found._asdict(), "groups": len(found.groups)}
    return tell(arguments, document, "\n".join(_lines(found)))


def _lines(found: ClusterView) -> Iterator[str]:
    signer = "the root key" if found.by_root else "the home before it"
    yield f"cluster     {found.cluster}"
    yield f"group       {found.group}, told by {found.node}"
    if not found.home:
        yield "home        not known yet"
        return
    yield f"home        {found.home}, epoch {found.epoch}, certified by {signer}"
    if found.home_nodes:
        yield f"            {' '.join(found.home_nodes)}"
    if found.home == found.group:
        yield f"rows        number {found.number}, of {len(found.groups)} groups among others"
        if not found.is_home:
            yield "held up     this group lacks rows that the home begins with: move-home --force"
        elif not found.signs:
            yield f"held up     {found.node} has not the home's key: see users.key of the others"
    elif found.rows_rank:
        yield f"rows        number {found.number}, signed by the home of rank {found.rows_rank}"
    else:
        yield "rows        none yet"
    if found.current_ms is not None:
        yield f"current     {found.current_ms / 1_000:.1f} s ago they were all that the home had"
    if found.rights_too_old:
        yield "too old     the home was not heard for too long: the cluster's users are refused"
    if found.is_parted:
        yield "parted      the home has lost rows that are here: cluster move-home --force"
    if found.failure:
        yield f"last answer {found.failure}"


def _nodes(arguments: argparse.Namespace) -> list[str]:
    """The members of a group as others reach them."""
    given = arguments.nodes or arguments.address
    found = [one.strip().partition("?")[0] for one in given.split(",")]
    if not all(one.startswith("tcp://") for one in found):
        raise ConfigError(
            "name the consume sockets of all members, as other groups reach them:"
            " --nodes tcp://10.0.0.1:10912,…",
            found=given,
        )
    return found
