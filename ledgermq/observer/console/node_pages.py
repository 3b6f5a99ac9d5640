"""Pages of the node and its group: at a glance, processes, disk, last events, users and quotas."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ledgermq.members.mirrors.mirror_figures import OwnState
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.observer.console.documents import address_of, section
from ledgermq.observer.console.group_pages import group_link
from ledgermq.observer.console.rendering import bytes_text, duration_text, number_text
from ledgermq.observer.console.tables import Row, ShownTable, TableColumn
from ledgermq.observer.console.topic_pages import topic_link
from ledgermq.observer.console.verb_acts import verb_act
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
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.process.node_status import HealthReason
from ledgermq.process.systemd.last_events import last_events
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.verbs.access import ListQuotas, ListUsers, RemoveQuota, RemoveUser, SetQuota, SetUser
from ledgermq.verbs.groups import ShowGroup

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

_CHARTS = (
    Chart("Messages a second", CURVES, (("messages_in", "stored"), ("messages_out", "given out"))),
    Chart("Bytes a second", CURVES, (("bytes_in", "stored"), ("bytes_out", "given out")), "bytes"),
    Chart(
        "Bytes that wait",
        CURVES,
        (("not_committed_bytes", "to commit"), ("not_dispatched_bytes", "to dispatch")),
        "bytes",
    ),
    Chart("A sync of the log, median", CURVES, (("sync_ms", "sync"),), "ms"),
)

_LAGS = (
    TableColumn("group", "Group", "code", group_link),
    TableColumn("topic", "Topic", "code", topic_link),
    TableColumn("lag", "Lag", "number"),
    TableColumn("members", "Members", "number"),
)
_DAMAGES = (
    TableColumn("file", "File", "code"),
    TableColumn("position", "Position", "number"),
    TableColumn("fault", "What is wrong"),
    TableColumn("unrepairable", "Cannot be mended, for"),
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
    TableColumn("text", "What happened"),
)
_MEMBERS = (
    TableColumn("node", "Node", "code", lambda row: str(row["url"])),
    TableColumn("role", "Role", "state"),
    TableColumn("behind", "Entries behind", "number"),
    TableColumn("in_flight_bytes", "On the way", "bytes"),
    TableColumn("silent_ms", "Silent for", "ms"),
    TableColumn("state", "Is"),
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
    TableColumn("trouble", "Trouble"),
    TableColumn("mark_trouble", "Retention is not told, for"),
)
_PROCESSES = (
    TableColumn("role", "Process", "code"),
    TableColumn("state", "State", "state"),
    TableColumn("pid", "Pid", "code"),
    TableColumn("restarts", "Restarts", "number"),
    TableColumn("beat_age_ms", "Sign of life, ago", "ms"),
    TableColumn("cpu_percent", "Processor, %", "number"),
    TableColumn("pss", "Memory", "bytes"),
    TableColumn("last_exit", "Ended last with"),
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


class NodePages:
    """Pages about the node itself; any member answers them."""

    def __init__(self, settings: Settings, scrapes: Scrapes, thread: Executor) -> None:
        """Nothing is read yet.

        Args:
            thread: for files, and the journal.
        """
        self._settings = settings
        self._scrapes = scrapes
        self._thread = thread
        self.pages = (
            ConsolePage("/", self._overview, {"transfer": _transfer}),
            ConsolePage("/processes", _processes),
            ConsolePage("/disk", self._disk),
            ConsolePage("/events", self._events),
        )

    async def _overview(self, asked: PageAsked) -> View:
        status: Any = await asked.inquiries.node.status()
        known = await _mirrors(asked)
        members, raft = await _members(asked, status, known)
        health = asked.health
        reasons = _with_words(health["reasons"] if health is not None else ())
        tables = [members, *_mirror_tables(known)]
        if health is not None and health["leads"]:
            tables.append(await self._lags(asked))
        others = [row["node"] for row in members.rows if row["role"] == "follower"]
        transfer = Change(
            "transfer",
            "Hand the leadership over",
            "Hand over",
            (Field("node", "To", "select", choices=[(str(name), str(name)) for name in others]),),
            text="Producers wait for some tenths of a second meanwhile.",
        )
        may = asked.is_operator and status["raft"]["role"] == "leader"
        return View(
            "The group",
            facts=(*_facts(status, raft, known), *_mirror_facts(known)),
            charts=_CHARTS,
            tables=tables,
            changes=(transfer,) if may and others else (),
            template="overview.html",
            values={"reasons": reasons, "status": status},
        )

    async def _lags(self, asked: PageAsked) -> ShownTable:
        """The pairs with the most that waits, of those that the caller may see."""
        rows: list[Row] = []
        pairs: list[tuple[str, str]] = []
        with suppress(LedgerError):
            pairs = await self._scrapes.greatest_lags(4 * LAGS_SHOWN)
        for topic, group in pairs:
            with suppress(LedgerError):
                state: Any = await asked.inquiries.ask(ShowGroup(group))
                lag = state["lag"].get(topic, 0)
                members = len(state["members"])
                rows.append({"group": group, "topic": topic, "lag": lag, "members": members})
            if len(rows) == LAGS_SHOWN:
                break
        rows.sort(key=lambda row: (-int(str(row["lag"])), str(row["group"])))
        return ShownTable("lags", "Who lags most", _LAGS, rows, "No group has consumed yet.")

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
        asked.inquirer.check_operator()
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
        table = ShownTable("events", "Last events, the newest first", _EVENTS, rows, none)
        text = "journalctl -u ledgermq --catalog explains each of them."
        return View("Events", text=text, tables=(table,))


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


async def _members(asked: PageAsked, status: Any, known: Any) -> tuple[ShownTable, Any]:
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
                peer = {"behind": 0, "in_flight_bytes": 0, "silent_ms": 0}
        elif known["is_mirror"]:
            role, state = "source", "another site's group"
        else:
            role, state = _role(node, raft), peer.get("mode", "the leader knows")
            if node in raft["bodiless"]:
                # What it was told of last says nothing of what it lacks: it holds nothing.
                state, peer = "without messages", {"silent_ms": peer.get("silent_ms")}
        state = (raft or {}).get("refusals", {}).get(node) or state
        told = {key: peer.get(key) for key in ("behind", "in_flight_bytes", "silent_ms")}
        rows.append({"node": node, "role": role, **told, "state": state, "url": urls.get(node, "")})
    table = ShownTable("members", "Members", _MEMBERS, rows)
    return table, raft


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


def _facts(status: Any, raft: Any, known: Any) -> Sequence[Fact]:
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
        Fact("Stored", number_text(counters["writer"]["messages"]), more="since the start"),
        Fact("Given out", number_text(_given_out(counters)), more="since the start"),
        Fact("Log", bytes_text(cursors["written"]["position"]), more=waits),
        *bodies,
        Fact("Disk", free, "" if disk["state"] == "roomy" else "bad", total),
        Fact("Up", duration_text(status["uptime_s"] * 1_000), more=f"{restarts} restarts"),
    )


def _given_out(counters: Mapping[str, Mapping[str, int]]) -> int:
    return sum(
        values["messages"]
        for name, values in counters.items()
        if name == "broker" or name.startswith("port-")
    )


async def _processes(asked: PageAsked) -> View:
    status: Any = await asked.inquiries.node.status()
    processes = ShownTable("processes", "Processes", _PROCESSES, status["processes"])
    rows, none = status["ports"], "Unix sockets alone."
    ports = ShownTable("ports", "Addresses of clients", _PORTS, rows, none)
    counters = [
        {"process": process, "counter": name, "value": value}
        for process, values in status["counters"].items()
        for name, value in values.items()
    ]
    caption = "Counters since the node was started"
    counts = ShownTable("counters", caption, _COUNTERS, counters)
    lock, versions = status["put_lock"], status["versions"]
    facts = (
        Fact("Version", str(versions.get("ledgermq", "")), more=f"kernel {status['kernel']}"),
        Fact("Acknowledged", status["ack_mode"]),
        Fact("Put lock", "held" if lock["holder"] else "free", more=f"{lock['slow']} times slow"),
        Fact(
            "Durable",
            "all"
            if not status["cursors"]["not_durable_bytes"]
            else bytes_text(status["cursors"]["not_durable_bytes"]) + " wait",
        ),
    )
    return View("Processes", facts=facts, tables=(processes, ports, counts))


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
        raise StorageError(
            f"folder not read: {error.strerror}", errno=error.errno, path=str(folder)
        ) from error
    return [
        {
            "file": name,
            "begin": int(name),
            "size": stat.st_size,
            "written": stat.st_mtime_ns // 1_000_000,
        }
        for name, stat in sorted(found)
    ]


_LIMITS = (
    ("produce_bytes", "Sent bytes a second"),
    ("produce_messages", "Sent messages a second"),
    ("consume_bytes", "Read bytes a second"),
    ("consume_messages", "Read messages a second"),
)
_OWNER = Field("owner", "Of", hint="topic:NAME, user:NAME or client:NAME", is_needed=True)
_NO_LIMIT = "0: no limit; empty: as it is"
_QUOTA_FIELDS = (
    _OWNER,
    *(Field(name, title, "number", hint=_NO_LIMIT) for name, title in _LIMITS),
)
_RIGHTS = (("DENY", "nothing"), ("PUB", "send"), ("SUB", "read"), ("PUB|SUB", "send and read"))
_USER = Field("user", "Name", is_needed=True)
_USER_FIELDS = (
    _USER,
    Field("admin", "An admin", "checkbox"),
    Field("topicPerms", "Rights to topics", hint="such as orders=PUB|SUB, bills=SUB"),
    Field("defaultTopicPerm", "To other topics", "select", "DENY", choices=_RIGHTS),
    Field("groupPerms", "Rights as groups", hint="such as billing=SUB"),
    Field("defaultGroupPerm", "As other groups", "select", "DENY", choices=_RIGHTS),
    Field("secretKey", "Secret", "password", hint="to sign requests, and to sign in here"),
)
_USER_COLUMNS = (
    TableColumn("user", "User", "code"),
    TableColumn("admin", "Admin", "state"),
    TableColumn("topics", "Topics", "list"),
    TableColumn("default_topic", "Other topics"),
    TableColumn("groups", "Groups", "list"),
    TableColumn("default_group", "Other groups"),
    TableColumn("has_secret_key", "Has a secret", "state"),
    TableColumn("public_keys", "Keys", "list"),
    TableColumn("addresses", "Comes from", "code"),
    TableColumn("cluster", "The cluster's", "state"),
)
_NO_USERS = "There are no users: everybody who reaches a socket may use the node, or nobody."
_QUOTA_COLUMNS = (
    TableColumn("owner", "Of", "code"),
    TableColumn("produce_bytes", "Sent bytes/s", "bytes"),
    TableColumn("produce_messages", "Sent messages/s", "number"),
    TableColumn("consume_bytes", "Read bytes/s", "bytes"),
    TableColumn("consume_messages", "Read messages/s", "number"),
    TableColumn("cluster", "The cluster's", "state"),
)
_NO_QUOTAS = "Nobody has a quota of their own: the settings' defaults hold."


async def _users(asked: PageAsked) -> View:
    find = partial(asked.inquiries.page, ListUsers())
    rows, next_ = await asked.rows("users", find, "users")
    table = ShownTable("users", "Users", _USER_COLUMNS, rows, _NO_USERS, next_)
    return View("Users", tables=(table,), changes=_user_changes() if asked.may_change else ())


def _user_changes() -> tuple[Change, ...]:
    text = "Rights become what is said here; an empty secret leaves the one there is."
    again = Field("typed", "The name again, to confirm it", is_needed=True)
    named = _USER, again
    return (
        Change("add", "Add a user", "Add", _USER_FIELDS),
        Change("alter", "Alter a user", "Alter", _USER_FIELDS, text),
        Change("remove", "Remove a user", "Remove this user", named, is_dangerous=True),
    )


async def _quotas(asked: PageAsked) -> View:
    find = partial(asked.inquiries.page, ListQuotas())
    rows, next_ = await asked.rows("quotas", find, "quotas")
    note = "0: no limit."
    table = ShownTable("quotas", "Quotas", _QUOTA_COLUMNS, rows, _NO_QUOTAS, next_, note)
    changes = (
        Change("set", "Set a quota", "Set", _QUOTA_FIELDS),
        Change("remove", "Remove a quota", "Remove", (_OWNER,), is_dangerous=True),
    )
    return View("Quotas", tables=(table,), changes=changes if asked.may_change else ())


_USER_ACTS = {
    "add": verb_act(SetUser, _USER_FIELDS, "User {user} was added.", "/users", mode="add"),
    "alter": verb_act(SetUser, _USER_FIELDS, "User {user} was altered.", "/users", mode="alter"),
    "remove": verb_act(RemoveUser, (_USER,), "User {user} was removed.", "/users", typed="user"),
}
_QUOTA_ACTS = {
    "set": verb_act(SetQuota, _QUOTA_FIELDS, "The quota of {owner} was set.", "/quotas"),
    "remove": verb_act(RemoveQuota, (_OWNER,), "The quota of {owner} was removed.", "/quotas"),
}
ACCESS_PAGES = (
    ConsolePage("/users", _users, _USER_ACTS),
    ConsolePage("/quotas", _quotas, _QUOTA_ACTS),
)
