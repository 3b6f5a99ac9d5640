"""``ledgermq cluster init|invite|join|remove|leave|list|status``: a cluster of groups.

``docs/operating/several-groups.md`` tells how they are used. Exit status: 0 done; 1 refused, or the
command line; 2 the root key's file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ledgermq.cli.clusters.drain_verbs import add_drain, leave_cluster, remove_group
from ledgermq.cli.clusters.home_verbs import add_move_home
from ledgermq.cli.node_options import NAME
from ledgermq.cli.node_verbs import asks, confirm
from ledgermq.cli.output import print_table, tell
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.json_objects import decoded, encoded
from ledgermq.rules.cluster.signatures import PUBLIC_SIZE, SigningKey
from ledgermq.sessions.keys.root_key import RootKey, new_root_key, read_root_key, write_root_key
from ledgermq.verbs.clusters import ClusterView

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
    init.add_argument("cluster", metavar="CLUSTER", help="name of the cluster")
    init.add_argument(
        "--root-key", type=Path, required=True, metavar="FILE", help="where the root key is written"
    )
    invite = _verb(
        commands,
        "invite",
        "tell the home of a group, and print what that needs to join",
        _invite,
        "Is asked of the home. What it prints is given to `ledgermq cluster join --ticket` on a"
        " host of the other group; nothing in it is secret.",
    )
    invite.add_argument("group", metavar="GROUP", help="node.broker_name of the other group")
    join = _verb(
        commands,
        "join",
        "have this group belong to a cluster of groups",
        _join,
        "Is asked of the group that joins. With --home the home is told of it as well, which needs"
        " an admin's rights there.",
    )
    how = join.add_mutually_exclusive_group(required=True)
    how.add_argument("--home", metavar="ADDRESS", help="nodes of the home, as --address has them")
    how.add_argument("--ticket", type=Path, metavar="FILE", help="what `cluster invite` printed")
    for verb, what in ((init, "this group"), (invite, "the other group"), (join, "this group")):
        verb.add_argument(
            "--nodes",
            metavar="LIST",
            help=f"consume sockets of all members of {what}, as tcp://10.0.0.1:10912,…"
            + (" (default: those of --address)" if verb is not invite else ""),
        )
    for verb in (invite, join):
        verb.add_argument(
            "--user", metavar="USER", help="user of the home by which the group's nodes are known"
        )
    remove = _verb(
        commands, "remove", "have a group in the cluster no more", _remove, "Is asked of the home."
    )
    remove.add_argument("group", metavar="GROUP")
    leave = _verb(
        commands,
        "leave",
        "have this group belong to no cluster",
        _leave,
        "Is asked of the group that leaves. A home leaves as the last one.",
    )
    leave.add_argument("--home", metavar="ADDRESS", help="nodes of the home, to tell it as well")
    for verb in (remove, leave):
        verb.add_argument("--yes", action="store_true", help="do not ask")
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
