"""``ledgermq acl``: users and their rights. ``docs/operating/access.md`` tells how they are used.

Exit status: 0 done, and with ``check`` allowed; 1 refused, not allowed, or the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ledgermq.cli.arguments import add_cluster_option, takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell
from ledgermq.cli.setup.user_import import left_over_line, take_users
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import ConfigError
from ledgermq.model.rights import Right
from ledgermq.rules.access.access import PLAIN_LISTS, PLAIN_TEXTS, PUBLIC_KEYS, User
from ledgermq.verbs.access import ListUsers, Mode, RemoveUser, SetUser, UserRow

SIZE_MAX = 16 * 1024 * 1024
_KNOWN = frozenset({"accessKey", "admin", *PLAIN_TEXTS, *PLAIN_LISTS})
_PERMS = frozenset({"DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"})


class PlainAcl(NamedTuple):
    """All fields by user that the file can say, checked; CURVE keys are none of them.

    ``left_out`` says what was not taken over, and why.
    """

    users: Mapping[str, Mapping[str, object]]
    left_out: tuple[str, ...]


def read_plain_acl(path: Path) -> PlainAcl:
    """The users in the file at ``path``.

    Raises:
        ConfigError: it cannot be read, or has another shape; names account and key.
    """
    # This verb alone needs it.
    import yaml

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError("file not read", file=str(path), reason=error.strerror) from error
    if len(content) > SIZE_MAX:
        raise ConfigError("file too large", file=str(path), size=len(content), limit=SIZE_MAX)
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ConfigError("file is no YAML", file=str(path), reason=str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError("file is no plain_acl.yml: no keys in it", file=str(path))
    left_out: list[str] = []
    if document.get("globalWhiteRemoteAddresses"):
        left_out.append(
            "globalWhiteRemoteAddresses: no address is let do everything here;"
            " give a user its addresses (ledgermq acl alter USER --addresses)"
        )
    accounts = document.get("accounts") or []
    if not isinstance(accounts, list):
        raise ConfigError("accounts is not a list", file=str(path))
    users: dict[str, Mapping[str, object]] = {}
    for number, account in enumerate(accounts, 1):
        name, fields = _user(account, number, left_out)
        if name in users:
            raise ConfigError("accessKey stands twice", file=str(path), accessKey=name)
        users[name] = fields
    return PlainAcl(users, tuple(left_out))


def _user(account: object, number: int, left_out: list[str]) -> tuple[str, Mapping[str, object]]:
    if not isinstance(account, dict) or "accessKey" not in account:
        raise ConfigError("account without an accessKey", account=number)
    # YAML takes 12345678 for a number; RocketMQ takes it for a text.
    name = str(account["accessKey"])
    fields: dict[str, object] = {"admin": account.get("admin") in (True, "true")}
    for key in PLAIN_TEXTS:
        if account.get(key) is not None:
            fields[key] = str(account[key]).strip()
    for key in ("defaultTopicPerm", "defaultGroupPerm"):
        if fields.get(key) and fields[key] not in _PERMS:
            # As in RocketMQ: what is no right is none.
            left_out.append(f"{name}: {key} {fields[key]!r} is no right, and counts as DENY")
            fields[key] = "DENY"
    for key in PLAIN_LISTS:
        fields[key] = [_perm(str(text), name, left_out) for text in account.get(key) or []]
    left_out += [f"{name}: {key} is not known" for key in sorted(account.keys() - _KNOWN)]
    whole = User.read(name, fields).all_fields()
    del whole[PUBLIC_KEYS]
    return name, whole


def _perm(text: str, name: str, left_out: list[str]) -> str:
    resource, equals, right = text.partition("=")
    if equals and right.strip() not in _PERMS:
        left_out.append(f"{name}: {text!r} names no right, and counts as DENY")
        return f"{resource}=DENY"
    return text


EXIT_NOT_ALLOWED = 1


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``acl`` and its verbs."""
    parser = subparsers.add_parser("acl", help="say who may do what")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="show the users and their rights")
    for mode, summary in (("add", "add a user"), ("alter", "change what is given of a user")):
        verb = verbs.add_parser(mode, help=summary)
        _add_user_options(verb)
        verb.set_defaults(mode=mode)
        asks(verb, connect_broker, _set)
    remove = verbs.add_parser("remove", help="remove a user")
    takes(remove, "user USER")
    add_cluster_option(remove)
    take = verbs.add_parser("import", help="take the users of a RocketMQ broker's plain_acl.yml")
    takes(take, "file FILE")
    takes(take, "--dry-run", "only say what would be taken")
    check = verbs.add_parser("check", help="say whether a user may do something")
    takes(check, "user USER")
    what = check.add_mutually_exclusive_group(required=True)
    takes(what, "--topic TOPIC")
    takes(what, "--group GROUP")
    takes(check, "--right", "default: SUB", choices=("PUB", "SUB"), default="SUB")
    keys = verbs.add_parser(
        "keys",
        help="make keys for tcp",
        description="With --node, the secret key of a node (listen.curve_secret_file); with "
        "--client, the keys of a client of the node whose public key is given with --server.",
    )
    made = keys.add_mutually_exclusive_group(required=True)
    takes(made, "--node FILE", "where the secret key is written")
    takes(made, "--client FILE", "where the keys are written")
    takes(
        made,
        "--users FILE",
        "where the key that seals users' secrets is written, before those that are there",
    )
    takes(keys, "--server KEY", "public key of the node")
    takes(keys, "--json", "print JSON")
    keys.set_defaults(func=_keys)
    answers = ((listing, _list), (remove, _remove), (take, _import), (check, _check))
    for verb, answer in answers:
        asks(verb, connect_broker, answer)


def _add_user_options(parser: argparse.ArgumentParser) -> None:
    perms = "PUB, SUB, PUB|SUB or DENY"
    takes(parser, "user USER")
    takes(parser, "--topic NAME=RIGHT", perms, action="append")
    takes(parser, "--group NAME=RIGHT", "SUB or DENY", action="append")
    takes(parser, "--default-topic RIGHT", "for topics that are not named")
    takes(parser, "--default-group RIGHT", "for groups that are not named")
    takes(parser, "--admin", choices=("yes", "no"))
    takes(parser, "--public-key KEY", "CURVE key (Z85)", action="append")
    takes(parser, "--secret-key-file FILE", "has the key of RocketMQ's clients")
    takes(parser, "--addresses PATTERN", "known by these alone, as 10.0.0.*")
    add_cluster_option(parser)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    listing = ListUsers()
    rows = broker.run(asking(listing))
    none = "no users yet: ledgermq acl add USER --topic TOPIC=PUB"
    document = listing.document(rows)
    return tell(arguments, document, (lambda: _print_table(rows)) if rows else none)


def _set(broker: Broker, arguments: argparse.Namespace) -> int:
    mode: Mode = arguments.mode
    fields = _fields(arguments)
    if mode == "alter" and not fields:
        raise ConfigError("nothing to change: name it with options", user=arguments.user)
    admin = AccessAdmin(broker)
    if mode == "alter":
        _merge_rights(fields, admin, arguments.user)
    change = SetUser(arguments.user, fields, mode=mode, cluster=arguments.cluster)
    row = broker.run(asking(change))

    def print_row() -> None:
        _print_table([row])
        if not (row.public_keys or row.has_secret_key or row.addresses):
            print(
                f"no client is {row.user} yet: ledgermq acl alter {row.user} --secret-key-file FILE"
                " (RocketMQ's), or --public-key KEY (ours, of ledgermq acl keys)"
            )

    return tell(arguments, change.document(row), print_row)


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    remove = RemoveUser(arguments.user, cluster=arguments.cluster)
    told = remove.document(broker.run(asking(remove)))
    return tell(arguments, told, f"{arguments.user} is gone")


def _import(broker: Broker, arguments: argparse.Namespace) -> int:
    # Needs a package that no other command does.

    found = read_plain_acl(arguments.file)
    left_over = take_users(broker, found.users, is_trial=arguments.dry_run)
    taken = "would be taken" if arguments.dry_run else "taken"
    lines = [f"users {taken}: {', '.join(sorted(found.users)) or 'none'}"]
    lines += [f"left out: {text}" for text in found.left_out]
    lines += [left_over_line(left_over)] if left_over else []
    document = {
        "users": sorted(found.users), "left_out": found.left_out, "left_over": left_over
    }  # fmt: skip
    return tell(arguments, document, "\n".join(lines))


def _check(broker: Broker, arguments: argparse.Namespace) -> int:
    rows = {row.user: row for row in AccessAdmin(broker).users()}
    row = rows.get(arguments.user)
    if row is None:
        raise ConfigError("user does not exist: ledgermq acl list", user=arguments.user)
    user = _user_of(row)
    right = Right[arguments.right]
    if arguments.topic is not None:
        is_allowed = user.may_use_topic(arguments.topic, right)
        what, is_named = f"{right.text} on topic {arguments.topic}", arguments.topic in user.topics
    else:
        is_allowed = user.may_use_group(arguments.group)
        what, is_named = f"SUB as group {arguments.group}", arguments.group in user.groups
    why = "it is named" if is_named else "by default"
    if user.admin and not user.topics and not user.groups:
        why = "an admin"
    text = f"{user.name}: {what}: {'allowed' if is_allowed else 'not allowed'} ({why})"
    tell(arguments, {"user": user.name, "allowed": is_allowed, "why": why}, text)
    return 0 if is_allowed else EXIT_NOT_ALLOWED


def _keys(arguments: argparse.Namespace) -> int:
    from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
    from ledgermq.sessions.keys.user_secrets import make_user_key

    if arguments.users is not None:
        make_user_key(arguments.users)
        text = f"{arguments.users}: copy to raft.keys_dir of all members, and reload them"
        return tell(arguments, {"file": str(arguments.users)}, text)
    if arguments.node is not None:
        public = make_node_key(arguments.node)
        hint = f"listen.curve_secret_file = {str(arguments.node)!r}; clients get --server KEY"
    elif arguments.server is None:
        raise ConfigError("name the node's public key with --server, as `acl keys --node` told it")
    else:
        public = make_client_keys(arguments.client, server=arguments.server)
        hint = f"ledgermq acl alter USER --public-key KEY; address tcp://…?keys={arguments.client}"
    return tell(arguments, {"public": public}, f"public key: {public}\n{hint}")


def _fields(arguments: argparse.Namespace) -> dict[str, object]:
    """What was given, by the names of the broker."""
    given: dict[str, object] = {
        "topicPerms": arguments.topic,
        "groupPerms": arguments.group,
        "defaultTopicPerm": arguments.default_topic,
        "defaultGroupPerm": arguments.default_group,
        "publicKeys": arguments.public_key,
        "whiteRemoteAddress": arguments.addresses,
    }
    if arguments.admin is not None:
        given["admin"] = arguments.admin == "yes"
    if arguments.secret_key_file is not None:
        try:
            given["secretKey"] = arguments.secret_key_file.read_text("utf-8-sig").strip()
        except OSError as error:
            raise ConfigError(
                "file not read", file=str(arguments.secret_key_file), reason=error.strerror
            ) from error
    return {key: value for key, value in given.items() if value is not None}


def _merge_rights(fields: dict[str, object], admin: AccessAdmin, name: str) -> None:
    """Have the rights that were given beside those that are not named."""
    row = next((row for row in admin.users() if row.user == name), None)
    if row is None:
        return
    for key, before in (("topicPerms", row.topics), ("groupPerms", row.groups)):
        given = fields.get(key)
        if isinstance(given, list):
            named = {text.partition("=")[0].strip(): text for text in (*before, *given)}
            fields[key] = list(named.values())


def _user_of(row: UserRow) -> User:
    return User.read(
        row.user,
        {
            "admin": row.admin,
            "defaultTopicPerm": row.default_topic,
            "defaultGroupPerm": row.default_group,
            "topicPerms": list(row.topics),
            "groupPerms": list(row.groups),
        },
    )


def _print_table(rows: list[UserRow]) -> None:
    width = max(6, *(len(row.user) for row in rows)) + 2
    print(f"{'user':<{width}}{'admin':<7}{'known by':<24}rights")
    for row in rows:
        known = [f"{len(row.public_keys)} keys"] if row.public_keys else []
        known += ["secret"] if row.has_secret_key else []
        known += [row.addresses] if row.addresses else []
        known += ["cluster"] if row.cluster else []
        rights = [f"topic {text}" for text in row.topics]
        rights += [f"group {text}" for text in row.groups]
        rights.append(f"others {row.default_topic}, groups {row.default_group}")
        admin = "yes" if row.admin else "no"
        print(f"{row.user:<{width}}{admin:<7}{', '.join(known) or '-':<24}{rights[0]}")
        for text in rights[1:]:
            print(f"{'':<{width + 31}}{text}")
