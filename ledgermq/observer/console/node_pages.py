"""Pages of the node and its group: at a glance, processes, disk, last events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ledgermq.client.core.questions import asking
from ledgermq.members.mirrors.mirror_figures import OwnState
from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.observer.console.documents import address_of, section
from ledgermq.observer.console.group_finding import (
    GroupFinding,
    GroupSigns,
    finding_of,
    headline,
    lagging_of,
)
from ledgermq.observer.console.happenings import HAPPENINGS_MAX, Happenings
from ledgermq.observer.console.history import History
from ledgermq.observer.console.rendering import (
    bytes_text,
    duration_text,
    number_text,
    rate_text,
    time_text,
)
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.views import (
    Change,
    Chart,
    ConsolePage,
    Done,
    Fact,
    Field,
    Form,
    PageAsked,
    View,
    checked_text,
)
from ledgermq.observer.inquiries.cluster_survey import GroupLook
from ledgermq.process.node_status import HealthReason
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.systemd.last_events import last_events
from ledgermq.raft.quorum import majority
from ledgermq.store.files.store_paths import StorePaths
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


CURVES = "/curves.json"
EVENTS_SHOWN = 200
LAGS_SHOWN = 10
FILES_MAX = 10_000
_HOW_FAR = address_of("second-site.md#how-far-it-is")
_HAS_TOLD = (
    "By what it has told: every 10 s while it takes much, else every five minutes. It may have"
    " more."
)
_READ_ONLY = (
    "This node is read only: what is sent and committed goes to the source, and comes from there."
)

_STATES = {"replicate": "in step", "probe": "is asked where it is", "files": "takes files"}
"""What a leader says of a member, by how it is fed."""

_CHARTS = (
    Chart("Messages a second", CURVES, (("messages_in", "stored"), ("messages_out", "given out"))),
    Chart("Bytes a second", CURVES, (("bytes_in", "stored"), ("bytes_out", "given out")), "bytes"),
    Chart(
        "Bytes that wait",
        CURVES,
        (("not_committed_bytes", "to commit"), ("not_dispatched_bytes", "to dispatch")),
        "bytes",
    ),
    Chart("A sync of the log, mean", CURVES, (("sync_ms", "sync"),), "ms"),
)

_DAMAGES = (
    TableColumn("file", "File", "code"),
    TableColumn("position", "Position", "number"),
    TableColumn("fault", "What is wrong", "words"),
    TableColumn("unrepairable", "Cannot be mended, for", "words"),
)
_LOG_FILES = (
    TableColumn("file", "File", "code"),
    TableColumn("begin", "First position", "number"),
    TableColumn("size", "Size", "bytes"),
    TableColumn("written", "Last written (UTC)", "time"),
)
_EVENTS = (
    TableColumn("at", "When (UTC)", "time"),
    TableColumn("level", "Weight", "state"),
    TableColumn("event", "Event", "code"),
    TableColumn("process", "Process"),
    TableColumn("text", "What happened", "words"),
)
_HAPPENED = (
    TableColumn("at", "When (UTC)", "time"),
    TableColumn("level", "Weight", "state"),
    TableColumn("event", "Event", "code"),
    TableColumn("who", "Who", "code"),
    TableColumn("text", "What happened", "words"),
)
_MEMBERS = (
    TableColumn("node", "Node", "code", lambda row: str(row["url"])),
    TableColumn("role", "Role", "state"),
    TableColumn("state", "State", "state"),
    TableColumn("silent_since", "Silent since (UTC)", "time"),
    TableColumn("behind", "Entries behind", "number"),
    TableColumn("in_flight_bytes", "On the way", "bytes"),
    TableColumn("silent_ms", "Last heard, ago", "ms"),
    TableColumn("trouble", "Trouble", "words"),
)
_MIRRORS = (
    TableColumn("mirror", "Mirror", "code", lambda _: _HOW_FAR),
    TableColumn("state", "State", "state"),
    TableColumn("lag_messages", "Messages behind", "number"),
    TableColumn("behind", "Bytes behind", "bytes"),
    TableColumn("lag_s", "Seconds behind", "number"),
    TableColumn("position", "Holds the log up to", "number"),
    TableColumn("at_ms", "Has said so (UTC)", "time"),
)
_MIRROR = (
    TableColumn("source", "Is given by", "code", lambda row: str(row["source"])),
    TableColumn("node", "Node there", "code"),
    TableColumn("state", "State", "state"),
    TableColumn("lag_messages", "Messages behind", "number"),
    TableColumn("lag_bytes", "Bytes behind", "bytes"),
    TableColumn("lag_s", "Seconds behind", "number"),
    TableColumn("silent_s", "Heard, seconds ago", "number"),
    TableColumn("held", "Holds the log up to", "number"),
    TableColumn("source_position", "The source had", "number"),
    TableColumn("marked", "Its retention was told", "number"),
    TableColumn("trouble", "Trouble", "words"),
    TableColumn("mark_trouble", "Retention is not told, for", "words"),
)
_PROCESSES = (
    TableColumn("role", "Process", "code"),
    TableColumn("state", "State", "state"),
    TableColumn("pid", "Pid", "code"),
    TableColumn("restarts", "Restarts", "number"),
    TableColumn("beat_age_ms", "Sign of life, ago", "ms"),
    TableColumn("cpu_percent", "Processor, %", "number"),
    TableColumn("pss", "Memory", "bytes"),
    TableColumn("last_exit", "Ended last with", "words"),
)
_PORTS = (
    TableColumn("setting", "Setting", "code"),
    TableColumn("address", "Address", "code"),
    TableColumn("unit", "Held by systemd's unit", "code"),
)
_COUNTERS = (
    TableColumn("process", "Process", "code"),
    TableColumn("counter", "Counter", "code"),
    TableColumn("value", "Value", "number"),
)


class Seen(NamedTuple):
    """What the observer has seen of the node since it began."""

    history: History
    happenings: Happenings


ListLags = Callable[[PageAsked, int], Awaitable[ShownTable]]


class NodePages:
    """Pages about the node itself; any member answers them."""

    def __init__(self, settings: Settings, seen: Seen, lags: ListLags, thread: Executor) -> None:
        """Nothing is read yet.

        Args:
            lags: the groups of which most waits.
            thread: for files, and the journal.
        """
        self._settings = settings
        self._seen = seen
        self._lags = lags
        self._thread = thread
        self.pages = (
            ConsolePage("/", self._overview, {"transfer": _transfer}),
            ConsolePage("/processes", self._processes),
            ConsolePage("/disk", self._disk),
            ConsolePage("/events", self._events),
        )

    async def _overview(self, asked: PageAsked) -> View:
        status: Any = await asked.inquiries.node.status()
        known = await _mirrors(asked)
        members, raft = await _members(asked, status, known, self._seen.happenings.silent)
        health = asked.health
        reasons = _with_words(health["reasons"] if health is not None else ())
        tables = [members, *_mirror_tables(known), *await cluster_tables(asked)]
        if health is not None and health["leads"]:
            # It may lead no more, and what is said of the group is of more weight.
            with suppress(LedgerError):
                tables.append(await self._lags(asked, LAGS_SHOWN))
        others = [row["node"] for row in members.rows if row["role"] == "follower"]
        transfer = Change(
            "transfer",
            "Hand the leadership over",
            "Hand over",
            (Field("node", "To", "select", choices=[(str(name), str(name)) for name in others]),),
            text="Producers wait for some tenths of a second meanwhile.",
        )
        may = asked.is_operator and status["raft"]["role"] == "leader"
        rates = self._seen.history.now()
        return View(
            "The group",
            facts=(*_facts(status, raft, known, rates), *_mirror_facts(known)),
            charts=_CHARTS,
            tables=tables,
            changes=(transfer,) if may and others else (),
            template="overview.html",
            values={
                "reasons": reasons,
                "finding": None
                if health is None
                else headline(
                    self._finding(status, raft, known), [str(one["text"]) for one in reasons]
                ),
            },
        )

    def _finding(self, status: Any, raft: Any, known: Any) -> GroupFinding:
        """Whether all is well with the group, as far as this node knows."""
        if known["is_mirror"]:
            return GroupFinding("ok", "This node copies another site's log", "It takes no message.")
        own = status["node"]["self_id"]
        happenings = self._seen.happenings
        if raft is None and len(status["node"]["peers"]) > 1:
            return GroupFinding(
                "bad", "Raft does not answer", "Of the other members nothing is known."
            )
        voters = {own} if raft is None else {*raft["voters"]}
        lagging = None
        if raft is None or status["raft"]["role"] == "leader":
            peers = () if raft is None else raft["peers"]
            lagging = lagging_of(peers, voters - {*((raft or {}).get("bodiless", ()))})
        leader = own if raft is None else raft["leader"] or ""
        return finding_of(
            GroupSigns(voters, leader, lagging, happenings.silent, happenings.since_ms)
        )

    async def _disk(self, asked: PageAsked) -> View:
        status: Any = await asked.inquiries.node.status()
        disk = status["disk"]
        loop = asyncio.get_running_loop()
        files = await loop.run_in_executor(self._thread, _log_files, self._settings)
        used = 1 - disk["free"] / disk["total"] if disk["total"] else 0
        facts = (
            Fact("State", disk["state"], "ok" if disk["state"] == "roomy" else "bad"),
            Fact("Free", bytes_text(disk["free"]), more=f"of {bytes_text(disk['total'])}"),
            Fact("Used", f"{used:.0%}", "warn" if used > 0.85 else ""),
            Fact("The store", bytes_text(disk["used_by_store"]), more=disk["path"]),
        )
        rows, none = status["damages"], "Nothing that was read is damaged."
        damages = ShownTable("damages", "Damaged places", _DAMAGES, rows, none)
        log = ShownTable("log-files", "Files of the log", _LOG_FILES, files, "There is no file.")
        return View("Disk and files", facts=facts, tables=(damages, log))

    async def _events(self, asked: PageAsked) -> View:
        happenings = self._seen.happenings
        seen = [{**one._asdict(), "at": one.at_ms} for one in happenings.newest()]
        since = f"since {time_text(happenings.since_ms)} UTC, when this process began"
        note = f"Kept in memory {since}: the last day, at most {HAPPENINGS_MAX:,}."
        none = f"Nothing has changed {since}."
        caption = "What this node has seen, the newest first"
        tables = [ShownTable("seen", caption, _HAPPENED, seen, none, note=note)]
        if asked.is_operator:
            tables.append(await self._journal())
        return View("Events", text="Changes of roles, elections, restarts.", tables=tables)

    async def _journal(self) -> ShownTable:
        loop = asyncio.get_running_loop()
        node = self._settings.node.self_id
        found = await loop.run_in_executor(
            self._thread, partial(last_events, node, EVENTS_SHOWN, uid=os.geteuid())
        )
        rows: list[Row] = [
            {
                "at": int(one.at.timestamp() * 1_000),
                "level": one.level,
                "event": one.event,
                "process": one.process,
                "text": one.text,
            }
            for one in reversed(found.told)
        ]
        none = f"There is nothing to see: {found.why_not}."
        note = "journalctl -u ledgermq --catalog explains each of them." if rows else ""
        return ShownTable("events", "From the journal", _EVENTS, rows, none, note=note)

    async def _processes(self, asked: PageAsked) -> View:
        status: Any = await asked.inquiries.node.status()
        processes = ShownTable("processes", "Processes", _PROCESSES, status["processes"])
        rows = [*status["ports"], *_other_addresses(self._settings)]
        ports = ShownTable("ports", "Addresses that are listened at", _PORTS, rows)
        counters = [
            {"process": process, "counter": name, "value": value}
            for process, values in status["counters"].items()
            for name, value in values.items()
        ]
        caption = "Counters since the node was started"
        counts = ShownTable("counters", caption, _COUNTERS, counters)
        lock, versions = status["put_lock"], status["versions"]
        waits = status["cursors"]["not_durable_bytes"]
        facts = (
            Fact("Version", str(versions.get("ledgermq", "")), more=f"kernel {status['kernel']}"),
            Fact("Acknowledged", status["ack_mode"]),
            Fact(
                "Put lock", "held" if lock["holder"] else "free", more=f"{lock['slow']} times slow"
            ),
            Fact("Durable", f"{bytes_text(waits)} wait" if waits else "all"),
        )
        return View("Processes", facts=facts, tables=(processes, ports, counts))


def _other_addresses(settings: Settings) -> list[Row]:
    """Where the node listens beside the ports of RocketMQ's clients."""
    listen = settings.listen
    named = {"produce": listen.produce, "consume": listen.consume, "http": listen.http}
    if listen.http == HTTP_UNIX:
        named["http"] = str(RuntimePaths(listen.runtime_dir).http)
    named["runtime_dir"] = f"unix sockets in {listen.runtime_dir}"
    return [
        {"setting": f"listen.{name}", "address": address, "unit": None}
        for name, address in named.items()
        if address is not None
    ]


async def _mirrors(asked: PageAsked) -> Any:
    """What a mirror copies, or the mirrors of another node; ``why_not``: why it cannot be read."""
    ask = asked.inquiries.mirrors
    known: dict[str, object] = {
        "is_mirror": ask.is_mirror,
        "own": None,
        "mirrors": [],
        "why_not": "",
    }
    try:
        if ask.is_mirror:
            return {**known, "own": await ask.own()}
        return {**known, "mirrors": await ask.held()}
    except LedgerError as error:
        return {**known, "why_not": str(error)}


async def _members(
    asked: PageAsked, status: Any, known: Any, silent: Mapping[str, int]
) -> tuple[ShownTable, Any]:
    """The members as this node sees them, and what raft told; None of a node that is alone."""
    raft: Any = None
    with suppress(LedgerError):
        raft = await asked.inquiries.node.raft()
    names = status["node"]
    peers = {peer["node"]: peer for peer in raft["peers"]} if raft is not None else {}
    members = {names["self_id"], *(_names(raft) if raft is not None else ())}
    urls = asked.inquirer.sources.members
    rows: list[Row] = []
    for node in sorted(members):
        peer = peers.get(node, {})
        if node == names["self_id"]:
            role, state = _own_role(status, raft, known), "this node"
            if role == "leader":
                peer = {"behind": 0, "in_flight_bytes": 0}
        elif known["is_mirror"]:
            role, state = "source", "another site's group"
        else:
            role, state = _role(node, raft), _STATES.get(peer.get("mode", ""), "heard of")
            if node in raft["bodiless"]:
                # What it was told of last says nothing of what it lacks: it holds nothing.
                state, peer = "without messages", {"silent_ms": peer.get("silent_ms")}
            if node in silent and role == "follower":
                # It may lead others, or have led before it went.
                role = "not known"
        rows.append(
            {
                "node": node,
                "role": role,
                "state": "silent" if node in silent else state,
                "silent_since": silent.get(node),
                **{key: peer.get(key) for key in ("behind", "in_flight_bytes", "silent_ms")},
                "trouble": (raft or {}).get("refusals", {}).get(node, ""),
                "url": urls.get(node, ""),
            }
        )
    # What nobody has is no column.
    empty = {key for key in ("silent_since", "trouble") if not any(row[key] for row in rows)}
    columns = [one for one in _MEMBERS if one.key not in empty]
    return ShownTable("members", "Members", columns, rows), raft


def _with_words(reasons: Sequence[HealthReason]) -> list[dict[str, object]]:
    """Reasons with what their pages say, once where several reasons have the same one."""
    told: set[str] = set()
    found: list[dict[str, object]] = []
    for reason in reasons:
        see, text = reason["see"], reason["text"]
        words = section(see) if see not in told else ""
        told.add(see)
        found.append({"text": text[:1].upper() + text[1:], "link": address_of(see), "words": words})
    return found


def _names(raft: Any) -> set[str]:
    return {*raft["voters"], *raft["learners"], *raft["witnesses"]}


def _own_role(status: Any, raft: Any, known: Any) -> str:
    """This node's role; what raft publishes for a mirror, or a witness, is "follower"."""
    if known["is_mirror"]:
        return "mirror"
    if raft is not None and status["node"]["self_id"] in raft["witnesses"]:
        return "witness"
    return str(status["raft"]["role"])


def _mirror_facts(known: Any) -> Sequence[Fact]:
    """What a mirror lacks; none of another node."""
    own = known["own"]
    if not known["is_mirror"]:
        return ()
    if own is None:
        return (Fact("Lag", "not known", "warn", more="the mirror has told nothing yet"),)
    lag = "not known" if own["lag_s"] is None else duration_text(own["lag_s"] * 1_000)
    lacks = f"{number_text(own['lag_messages'])} messages, {bytes_text(own['lag_bytes'])}"
    tone = {OwnState.COPIES: "", OwnState.DEAF: "warn"}.get(own["state"], "bad")
    return (Fact("Lag", lag, tone, more=lacks),)


def _mirror_tables(known: Any) -> Sequence[ShownTable]:
    """A table of what a mirror copies, or of the mirrors that another node's log is kept for, if
    any.
    """
    if known["is_mirror"]:
        return (_own_table(known["own"], known["why_not"]),)
    if not (known["mirrors"] or known["why_not"]):
        return ()
    rows, none = known["mirrors"], f"They are not known just now: {known['why_not']}."
    return (ShownTable("mirrors", "Mirrors at other sites", _MIRRORS, rows, none, note=_HAS_TOLD),)


def _own_table(own: Any, why_not: str) -> ShownTable:
    rows = [] if own is None else [{**own, "marked": own["marked"] if own["marked"] >= 0 else None}]
    none = f"It has told nothing yet{why_not and f': {why_not}'}."
    return ShownTable("mirror", "A mirror of another site", _MIRROR, rows, none, note=_READ_ONLY)


def _role(node: str, raft: Any) -> str:
    if node == raft["leader"]:
        return "leader"
    if node in raft["learners"]:
        return "learner"
    return "witness" if node in raft["witnesses"] else "follower"


def _facts(status: Any, raft: Any, known: Any, rates: Mapping[str, float]) -> Sequence[Fact]:
    cursors, counters = status["cursors"], status["counters"]
    role = _own_role(status, raft, known)
    leader = (raft or {}).get("leader") or ""
    restarts = sum(process["restarts"] for process in status["processes"])
    copies = (raft or {}).get("copies")
    tone, hold = "", "hold all messages"
    if copies is not None and raft["leans_on_witness"]:
        tone, hold = "warn", "leans on its witness"
    bodies = () if copies is None else (Fact("Copies", f"{copies} members", tone, hold),)
    leads = f", {leader} leads" if leader and role != "leader" else ""
    waits = f"{bytes_text(cursors['not_committed_bytes'])} not committed"
    disk = status["disk"]
    free, total = f"{bytes_text(disk['free'])} free", f"of {bytes_text(disk['total'])}"
    return (
        Fact("Role", role, more=f"term {status['raft']['term']}{leads}"),
        _rate("Stored", rates.get("messages_in"), counters["writer"]["messages"]),
        _rate("Given out", rates.get("messages_out"), _given_out(counters)),
        Fact("Log", bytes_text(cursors["written"]["position"]), more=waits),
        *bodies,
        Fact("Disk", free, "" if disk["state"] == "roomy" else "bad", total),
        Fact("Up", duration_text(status["uptime_s"] * 1_000), more=f"{restarts} restarts"),
    )


def _rate(title: str, rate: float | None, count: int) -> Fact:
    return Fact(title, rate_text(rate), more=f"{number_text(count)} since the start")


def _given_out(counters: Mapping[str, Mapping[str, int]]) -> int:
    return sum(
        values["messages"]
        for name, values in counters.items()
        if name == "broker" or name.startswith("port-")
    )


async def _transfer(asked: PageAsked, form: Form) -> Done:
    node = checked_text("node", form.get("node", ""))
    done = await asked.inquiries.node.transfer(node)
    return Done(f"{node} leads in term {done['term']}, after {done['took_ms']} ms.", "/")


def _log_files(settings: Settings) -> list[Row]:
    paths = StorePaths.of(settings)
    folders = [folder for folder in (paths.old, paths.data) if folder is not None]
    return [row for folder in folders for row in _files_of(folder)][:FILES_MAX]


def _files_of(folder: Path) -> list[Row]:
    """Those of a folder whose names are positions; none where there is no folder.

    Raises:
        StorageError: the operating system refused.
    """
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat()) for entry in entries if entry.name.isdecimal()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError.of("folder not read", error, why="within", path=folder) from error
    return [
        {
            "file": name,
            "begin": int(name),
            "size": stat.st_size,
            "written": stat.st_mtime_ns // 1_000_000,
        }
        for name, stat in sorted(found)
    ]
