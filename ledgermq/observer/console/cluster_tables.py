"""Table of a cluster's groups: as this node knows them, and how their members answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledgermq.client.core.questions import asking
from ledgermq.model.errors import LedgerError
from ledgermq.observer.console.rendering import duration_text
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.views import PageAsked
from ledgermq.observer.inquiries.cluster_survey import GroupLook
from ledgermq.raft.quorum import majority
from ledgermq.verbs.clusters import ClusterGroup, ClusterView, ShowCluster

_GROUPS = (
    TableColumn("group", "Group", "code"),
    TableColumn("part", "Is", "state"),
    TableColumn("health", "How it is", "state", hint="As its members told just now"),
    TableColumn("told", "In words"),
    TableColumn("leader", "Leads", "code"),
    TableColumn("silent", "Silent", "list", hint="Those that do not answer within two seconds"),
    TableColumn("behind", "Farthest behind", "bytes", hint="Of the members that answer"),
    TableColumn("lag", "Messages wait", "number", hint="For all of its consumer groups"),
    TableColumn("nodes", "Members are reached at", "list"),
    TableColumn("user", "Asks the home as", "code"),
)


async def cluster_tables(asked: PageAsked) -> Sequence[ShownTable]:
    """The groups of the cluster that the node's group belongs to; none where it belongs to none, or
    the broker does not say so now.
    """
    try:
        view = await asked.inquirer.node(lambda session: session.run(asking(ShowCluster())))
    except LedgerError:
        return ()
    looks = asked.inquirer.sources.cluster
    if view is None or looks is None:
        return ()
    groups = sorted(view.groups, key=lambda one: (one.group != view.home, one.group))
    return (cluster_table(view, groups, await looks.look(groups)),)


def cluster_table(
    view: ClusterView, groups: Sequence[ClusterGroup], looks: Mapping[str, GroupLook]
) -> ShownTable:
    """The groups of a cluster in this order."""
    rows: list[Row] = [
        {
            **one._asdict(),
            "part": _part(one.group, view),
            **dict(zip(("health", "told"), health_of(looks.get(one.group)), strict=True)),
            **(looks.get(one.group) or GroupLook())._asdict(),
        }
        for one in groups
    ]
    return ShownTable("cluster", f"Groups of {view.cluster}", _GROUPS, rows, note=_note(view))


def health_of(look: GroupLook | None) -> tuple[str, str]:
    """How a group is, as a state and in some words."""
    if look is None:
        return "not seen yet", ""
    answer = look.members - len(look.silent)
    if not answer:
        return "no answer", look.why
    told = f"{answer} of {look.members} answer"
    if not look.leader:
        return "nobody leads", told
    if not look.silent:
        return "all answer", told if look.lag is not None else f"{told}; lags: {look.why}"
    spare = answer - majority(look.members)
    return "some silent", f"{told}, {spare if spare > 0 else 'none'} more may fail"


def _part(group: str, view: ClusterView) -> str:
    if group == view.home:
        return "home, this group" if view.is_home else "home"
    return "this group" if group == view.group else "member"


def _note(view: ClusterView) -> str:
    if view.is_parted:
        return "This group has rows that the home has lost."
    if view.failure:
        return f"The home does not answer: {view.failure}."
    if view.is_home or view.current_ms is None:
        return ""
    return f"As the home had them {duration_text(view.current_ms)} ago."
