"""Pages of who may do what, and how much: users and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledgermq.observer.console.tables import ShownTable, TableColumn
from ledgermq.observer.console.views import (
    Change,
    ConsolePage,
    Done,
    Field,
    Form,
    PageAsked,
    View,
    check_typed,
    checked_text,
    number_of,
)
from ledgermq.verbs.access import RemoveQuota, RemoveUser, SetQuota, SetUser

_LIMITS = (
    ("produce_bytes", "Sent bytes a second"),
    ("produce_messages", "Sent messages a second"),
    ("consume_bytes", "Read bytes a second"),
    ("consume_messages", "Read messages a second"),
)
_RIGHTS = (("DENY", "nothing"), ("PUB", "send"), ("SUB", "read"), ("PUB|SUB", "send and read"))


async def _users(asked: PageAsked) -> View:
    async def find(limit: int, after: str) -> Mapping[str, object]:
        return await asked.inquiries.users.list(limit=limit, after=after)

    rows, next_ = await asked.rows("users", find, "users")
    table = ShownTable("users", "Users", (
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
    ), rows, "There are no users: everybody who reaches a socket may use the node, or nobody.",
       next_)  # fmt: skip
    return View("Users", tables=(table,), changes=_user_changes() if asked.may_change else ())


def _user_changes() -> tuple[Change, ...]:
    name = Field("user", "Name", is_needed=True)
    fields = (
        Field("admin", "An admin", "checkbox"),
        Field("topicPerms", "Rights to topics", hint="such as orders=PUB|SUB, bills=SUB"),
        Field("defaultTopicPerm", "To other topics", "select", "DENY", choices=_RIGHTS),
        Field("groupPerms", "Rights as groups", hint="such as billing=SUB"),
        Field("defaultGroupPerm", "As other groups", "select", "DENY", choices=_RIGHTS),
        Field("secretKey", "Secret", "password", hint="to sign requests, and to sign in here"),
    )
    return (
        Change("add", "Add a user", "Add", (name, *fields)),
        Change("alter", "Alter a user", "Alter", (name, *fields),
               text="Rights become what is said here; an empty secret leaves the one there is."),
        Change("remove", "Remove a user", "Remove this user", (
            name, Field("typed", "The name again, to confirm it", is_needed=True)),
            is_dangerous=True),
    )  # fmt: skip


async def _add_user(asked: PageAsked, form: Form) -> Done:
    name = checked_text("user", form.get("user", ""))
    await asked.inquiries.ask(SetUser(name, _user_fields(form), mode="add"))
    return Done(f"User {name} was added.", "/users")


async def _alter_user(asked: PageAsked, form: Form) -> Done:
    name = checked_text("user", form.get("user", ""))
    await asked.inquiries.ask(SetUser(name, _user_fields(form), mode="alter"))
    return Done(f"User {name} was altered.", "/users")


async def _remove_user(asked: PageAsked, form: Form) -> Done:
    name = checked_text("user", form.get("user", ""))
    check_typed(form, name)
    await asked.inquiries.ask(RemoveUser(name))
    return Done(f"User {name} was removed.", "/users")


def _user_fields(form: Form) -> dict[str, object]:
    fields: dict[str, object] = {
        "admin": form.get("admin") == "yes",
        "topicPerms": form.get("topicPerms", "").replace(",", " ").split(),
        "groupPerms": form.get("groupPerms", "").replace(",", " ").split(),
        "defaultTopicPerm": form.get("defaultTopicPerm", ""),
        "defaultGroupPerm": form.get("defaultGroupPerm", ""),
    }
    if form.get("secretKey"):
        fields["secretKey"] = form["secretKey"]
    return fields


async def _quotas(asked: PageAsked) -> View:
    async def find(limit: int, after: str) -> Mapping[str, object]:
        return await asked.inquiries.quotas.list(limit=limit, after=after)

    rows, next_ = await asked.rows("quotas", find, "quotas")
    table = ShownTable("quotas", "Quotas", (
        TableColumn("owner", "Of", "code"),
        TableColumn("produce_bytes", "Sent bytes/s", "bytes"),
        TableColumn("produce_messages", "Sent messages/s", "number"),
        TableColumn("consume_bytes", "Read bytes/s", "bytes"),
        TableColumn("consume_messages", "Read messages/s", "number"),
        TableColumn("cluster", "The cluster's", "state"),
    ), rows, "Nobody has a quota of their own: the settings' defaults hold.", next_,
       "0: no limit.")  # fmt: skip
    owner = Field("owner", "Of", hint="topic:NAME, user:NAME or client:NAME", is_needed=True)
    changes = (
        Change("set", "Set a quota", "Set", (owner, *(
            Field(name, title, "number", hint="0: no limit; empty: as it is")
            for name, title in _LIMITS))),
        Change("remove", "Remove a quota", "Remove", (owner,), is_dangerous=True),
    )  # fmt: skip
    return View("Quotas", tables=(table,), changes=changes if asked.may_change else ())


async def _set_quota(asked: PageAsked, form: Form) -> Done:
    owner = checked_text("owner", form.get("owner", ""))
    limits: dict[str, Any] = {name: number_of(name, form.get(name, "")) for name, _ in _LIMITS}
    await asked.inquiries.ask(SetQuota(owner, **limits))
    return Done(f"The quota of {owner} was set.", "/quotas")


async def _remove_quota(asked: PageAsked, form: Form) -> Done:
    owner = checked_text("owner", form.get("owner", ""))
    await asked.inquiries.ask(RemoveQuota(owner))
    return Done(f"The quota of {owner} was removed.", "/quotas")


PAGES = (
    ConsolePage("/users", _users, {"add": _add_user, "alter": _alter_user, "remove": _remove_user}),
    ConsolePage("/quotas", _quotas, {"set": _set_quota, "remove": _remove_quota}),
)
