"""Pages of access: users and quotas."""

from __future__ import annotations

from functools import partial

from ledgermq.observer.console.tables import ShownTable, TableColumn
from ledgermq.observer.console.verb_acts import verb_act
from ledgermq.observer.console.views import Change, ConsolePage, Field, PageAsked, View
from ledgermq.verbs.access import ListQuotas, ListUsers, RemoveQuota, RemoveUser, SetQuota, SetUser

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
_NO_USERS = (
    "There are no users. With access.enabled nobody but the node's own accounts may use it then;"
    " without, everybody whom a socket lets in may."
)
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
    changes = _user_changes(there_are=bool(rows)) if asked.may_change else ()
    return View("Users", tables=(table,), changes=changes)


def _user_changes(*, there_are: bool) -> tuple[Change, ...]:
    text = "Rights become what is said here; an empty secret leaves the one there is."
    again = Field("typed", "The name again, to confirm it", is_needed=True)
    named = _USER, again
    add = Change("add", "Add a user", "Add", _USER_FIELDS)
    if not there_are:
        return (add,)
    return (
        add,
        Change("alter", "Alter a user", "Alter", _USER_FIELDS, text),
        Change("remove", "Remove a user", "Remove this user", named, is_dangerous=True),
    )


async def _quotas(asked: PageAsked) -> View:
    find = partial(asked.inquiries.page, ListQuotas())
    rows, next_ = await asked.rows("quotas", find, "quotas")
    note = "0: no limit."
    table = ShownTable("quotas", "Quotas", _QUOTA_COLUMNS, rows, _NO_QUOTAS, next_, note)
    set_, remove = (
        Change("set", "Set a quota", "Set", _QUOTA_FIELDS),
        Change("remove", "Remove a quota", "Remove", (_OWNER,), is_dangerous=True),
    )
    changes = (set_, remove) if rows else (set_,)
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
