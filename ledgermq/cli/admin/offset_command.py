"""``ledgermq offset``: consumed offsets of groups, shown, reset and cloned."""

from __future__ import annotations

import argparse
from functools import partial

from ledgermq.cli.admin.group_command import print_lag
from ledgermq.cli.arguments import LateCommand, Run, add_live_options, takes
from ledgermq.cli.node_verbs import add_command, add_verb
from ledgermq.cli.output import print_table, tell
from ledgermq.cli.verb_options import add_options
from ledgermq.client.admin.admin import Admin
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import ConfigError
from ledgermq.model.instants import parse_time
from ledgermq.verbs.offsets import CloneOffsets, OffsetMove, ResetOffsets, Target
from ledgermq.verbs.verb import Verb


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``offset`` and its verbs."""
    verbs = add_command(
        subparsers,
        "offset",
        "show, reset and clone what groups have consumed",
        "An offset is that of the next message that a group gets of a queue.",
    )
    show = add_verb(
        verbs, "show", "show the offsets of a group", _show,
        examples=[
            "offset show billing", "offset show billing orders",
            "offset show billing --as-of 2026-11-29T14:05 --from s3://archive/orders-a",
        ],
    )  # fmt: skip
    reset = add_verb(
        verbs, "reset", "let a group go on elsewhere", _reset,
        examples=[
            "offset reset billing orders --to first --dry-run",
            "offset reset billing orders --to time=2025-12-31T23:59",
            "offset reset billing orders --to 1200 --queue 3",
        ],
        more="Refused while members of the group consume: they would commit their own over it;"
        " and for a group that is not there, whose name may be misspelt, but for --create.",
    )  # fmt: skip
    clone = add_verb(
        verbs, "clone", "let a group be as far as another one", _clone,
        examples=["offset clone billing billing-test --topic orders --create"],
        more="Without --topic, in all topics that the other one has consumed. A group that is not"
        " there is refused, but for --create.",
    )  # fmt: skip
    takes(show, "group GROUP")
    takes(show, "topic TOPIC", nargs="?")
    takes(show, "--as-of WHEN", "as they were then: a time, or index=N; with --from")
    takes(
        show,
        "--from PLACE",
        "where the pieces are that tell what was (ledgermq piece seal)",
        dest="place",
    )
    add_live_options(show)
    asks_node: Run = show.get_default("func")
    show.set_defaults(func=partial(_show_any, asks_node))
    takes(reset, "group GROUP")
    takes(reset, "topic TOPIC")
    takes(
        reset,
        "--to WHERE",
        "first, last, time=TIME (the first message stored then or later), or an offset",
        required=True,
    )
    takes(reset, "--queue N", "only this one; may be repeated", action="append")
    takes(clone, "source FROM")
    takes(clone, "group TO")
    takes(clone, "--topic TOPIC", "only in this topic")
    for parser, verb in ((reset, ResetOffsets), (clone, CloneOffsets)):
        for option in ("dry_run", "force", "create"):
            add_options(parser, verb, only=(option,))


def parse_target(text: str) -> tuple[Target, int | None]:
    """Where ``--to`` leads, and the time or the offset in it.

    Raises:
        ConfigError: it is no such place.
    """
    if text == "first":
        return "first", None
    if text == "last":
        return "last", None
    if text.startswith("time="):
        return "time", parse_time(text.removeprefix("time="), "--to time=")
    if text.isdecimal():
        return "number", int(text)
    raise ConfigError(
        "--to names no place", given=text, allowed="first, last, time=TIME, or an offset"
    )


def _show_any(asks_node: Run, arguments: argparse.Namespace) -> int:
    """What a group has consumed, as the node says; or what it had, as pieces do."""
    if arguments.as_of is not None:
        return LateCommand("spark.pieces", "show_offsets")(arguments)
    for option in ("from", "store", "runtime-dir", "self-id"):
        value = (
            arguments.place if option == "from" else getattr(arguments, option.replace("-", "_"))
        )
        if value is not None:
            raise ConfigError(f"--{option} is for --as-of", given=str(value))
    return asks_node(arguments)


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = admin.lag(arguments.group, arguments.topic)
    none = f"{arguments.group} has consumed nothing yet"
    queues = [row._asdict() for row in rows]
    document = {"group": arguments.group, "queues": queues}
    return tell(arguments, document, (lambda: print_lag(rows)) if rows else none)


def _reset(admin: Admin, arguments: argparse.Namespace) -> int:
    target, value = parse_target(arguments.to)
    reset = ResetOffsets(
        arguments.group,
        arguments.topic,
        target,
        value,
        queues=arguments.queue,
        force=arguments.force,
        create=arguments.create,
        dry_run=arguments.dry_run,
    )
    return _told(reset, admin, arguments)


def _clone(admin: Admin, arguments: argparse.Namespace) -> int:
    clone = CloneOffsets(
        arguments.source,
        arguments.group,
        arguments.topic,
        force=arguments.force,
        create=arguments.create,
        dry_run=arguments.dry_run,
    )
    return _told(clone, admin, arguments)


def _told(verb: Verb[list[OffsetMove]], admin: Admin, arguments: argparse.Namespace) -> int:
    moves = admin.run(asking(verb))
    document = verb.document(moves)
    return tell(arguments, document, lambda: _print_moves(moves, is_done=not arguments.dry_run))


def _print_moves(moves: list[OffsetMove], *, is_done: bool) -> None:
    print_table(
        ["topic", "queue", "from", "to"],
        [
            [
                move.topic,
                f"{move.queue}",
                "-" if move.old is None else f"{move.old:,}",
                f"{move.new:,}",
            ]
            for move in moves
        ],
    )
    if not is_done:
        print("nothing was changed (--dry-run)")
