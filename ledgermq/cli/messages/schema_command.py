"""``ledgermq schema``: register, list, show, check and delete schemas of topics.

Exit status: 0 done; 1 refused, not compatible, or the command line.
"""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import add_command, asks, confirm
from ledgermq.cli.output import print_table, tell
from ledgermq.cli.verb_options import add_options
from ledgermq.client.admin.broker_admins import SchemaAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import TEXT_SIZE_MAX, Compatibility, SchemaType
from ledgermq.verbs.schemas import SetSchemaRule

TYPE_OF_ENDING = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON,
    ".pb": SchemaType.PROTOBUF,
    ".desc": SchemaType.PROTOBUF,
}
"""What a file is taken for, where ``--type`` does not say it."""

RULES = ", ".join(Compatibility)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``schema`` and its verbs."""
    verbs = add_command(
        subparsers,
        "schema",
        "say what the bodies of messages are",
        "A subject is a topic, or a topic with -value or -key behind it, and has versions.",
    )
    listing = verbs.add_parser("list", help="show the subjects, their rules and versions")
    asks(listing, connect_broker, _list)
    show = verbs.add_parser("show", help="show one version of a subject, or the schema of an id")
    takes(show, "subject SUBJECT|ID")
    takes(show, "--version N", "another one than the last")
    asks(show, connect_broker, _show)
    for name, summary, answer in (
        ("register", "have a schema as the next version of a subject", _register),
        ("check", "say whether a schema may be the next version, and change nothing", _check),
    ):
        verb = verbs.add_parser(name, help=summary)
        takes(verb, "subject SUBJECT")
        takes(verb, "file FILE", "with the schema; - reads standard input", type=str)
        takes(verb, "--type", "where the file's name tells none", choices=[*SchemaType])
        takes(
            verb,
            "--compatibility RULE",
            f"the subject's rule, this one included: {RULES}",
            choices=[*Compatibility],
        )
        asks(verb, connect_broker, answer)
    rule = verbs.add_parser("rule", help="have another rule for the versions to come")
    takes(rule, "subject SUBJECT")
    takes(rule, "compatibility RULE", RULES, choices=[*Compatibility])
    add_options(rule, SetSchemaRule, only=("ahead",))
    asks(rule, connect_broker, _rule)
    delete = verbs.add_parser("delete", help="delete a subject, or one version of it")
    takes(delete, "subject SUBJECT")
    takes(delete, "--version N", "this one alone")
    takes(delete, "--yes", "do not ask")
    asks(delete, connect_broker, _delete)


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    found = SchemaAdmin(broker).subjects()
    lines = [[row.subject, row.compatibility, _versions(row.versions)] for row in found]
    document = {"subjects": [row._asdict() for row in found]}
    none = "no schemas yet: ledgermq schema register SUBJECT FILE"

    def print_rows() -> None:
        print_table(["subject", "compatibility", "versions"], lines)

    return tell(arguments, document, print_rows if found else none)


def _show(broker: Broker, arguments: argparse.Namespace) -> int:
    admin = SchemaAdmin(broker)
    if arguments.subject.isdecimal() and arguments.version is None:
        found = admin.schema_of_id(int(arguments.subject))
        return tell(arguments, found._asdict(), found.schema)
    row, found = admin.schema(arguments.subject, arguments.version)
    head = f"{row.subject}: {row.compatibility}, versions {_versions(row.versions)}"
    if not found.version:
        return tell(arguments, row._asdict(), head)
    told = f"{head}\nversion {found.version}, id {found.id}, {found.type}\n{found.schema}"
    return tell(arguments, {**row._asdict(), **found._asdict()}, told)


def _register(broker: Broker, arguments: argparse.Namespace) -> int:
    kind, schema = _read(arguments)
    found = SchemaAdmin(broker).register(
        arguments.subject, kind, schema, compatibility=arguments.compatibility
    )
    text = f"{found.subject}: version {found.version}, id {found.id}"
    return tell(arguments, found._asdict(), text)


def _check(broker: Broker, arguments: argparse.Namespace) -> int:
    kind, schema = _read(arguments)
    found = SchemaAdmin(broker).check_schema(
        arguments.subject, kind, schema, compatibility=arguments.compatibility
    )
    lines = [
        f"version {one.version}: the {one.reader} schema does not read what the other one writes:"
        f" {one.place}: {one.reason}"
        for one in found
    ]
    document = {"compatible": not found, "conflicts": [one._asdict() for one in found]}
    tell(arguments, document, "\n".join(lines) or f"{arguments.subject}: compatible")
    return 1 if found else 0


def _rule(broker: Broker, arguments: argparse.Namespace) -> int:
    SchemaAdmin(broker).set_rule(arguments.subject, arguments.compatibility, ahead=arguments.ahead)
    document = {"subject": arguments.subject, "compatibility": arguments.compatibility}
    return tell(arguments, document, f"{arguments.subject}: {arguments.compatibility}")


def _delete(broker: Broker, arguments: argparse.Namespace) -> int:
    subject, version = arguments.subject, arguments.version
    what = subject if version is None else f"version {version} of {subject}"
    confirm(arguments, f"delete {what}, whose messages nobody can read by it any more")
    SchemaAdmin(broker).delete_schema(subject, version)
    return tell(arguments, {"deleted": subject, "version": version}, f"deleted {what}")


def _read(arguments: argparse.Namespace) -> tuple[str, str]:
    """Type and text of the schema in a file.

    Raises:
        ConfigError: it cannot be read, is too large, or its type is not known.
    """
    name = arguments.file
    kind = arguments.type or TYPE_OF_ENDING.get(Path(name).suffix)
    if kind is None:
        raise ConfigError(
            "type of the schema is not known: say so with --type",
            file=name,
            known=", ".join(TYPE_OF_ENDING),
        )
    try:
        if name == "-":
            content = sys.stdin.buffer.read(TEXT_SIZE_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(TEXT_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError("file cannot be read", file=name, reason=error.strerror) from None
    if len(content) > TEXT_SIZE_MAX:
        raise ConfigError("schema is too large", file=name, limit=TEXT_SIZE_MAX)
    if kind == SchemaType.PROTOBUF and content[:1] == b"\n":
        return kind, base64.b64encode(_only_file(content, name)).decode()
    try:
        return kind, content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigError("schema is no text", file=name) from None


def _only_file(content: bytes, name: str) -> bytes:
    """The ``FileDescriptorProto`` of a set that has one: what ``protoc`` writes is a set."""
    size, at = 0, 1
    for shift in range(0, 28, 7):
        if at >= len(content):
            break
        size |= (content[at] & 0x7F) << shift
        at += 1
        if content[at - 1] < 0x80:
            break
    if at + size == len(content) and content[at : at + 1] == b"\n":
        return content[at:]
    if at + size < len(content) and content[at + size] == ord("\n"):
        raise ConfigError("set has more than one file: leave --include_imports out", file=name)
    return content


def _versions(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "-"
