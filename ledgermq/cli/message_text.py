"""Messages as text for people: a line each, or everything about one."""

from __future__ import annotations

import sys

from ledgermq.cli.output import time_text
from ledgermq.cli.seen_text import shown
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.model.errors import BodyUnreadableError

PREVIEW_SIZE_MAX = 60
BODY_SIZE_MAX = 4_096
"""More of a body is not shown without being asked for."""


def preview(message: ReceivedMessage) -> str:
    """The beginning of the body, on one line."""
    body = bytes(message.body_start(4 * PREVIEW_SIZE_MAX).content)
    text = shown(body.decode(errors="replace"))
    return text if len(text) <= PREVIEW_SIZE_MAX else text[: PREVIEW_SIZE_MAX - 1] + "…"


def details(message: ReceivedMessage) -> list[tuple[str, str]]:
    """Everything about a message but its body, by name."""
    rows = [
        ("topic", message.topic),
        ("queue", str(message.queue_id)),
        ("queue offset", str(message.queue_offset)),
        ("position", str(message.physical_offset)),
        ("unique id", message.unique_id or "-"),
        ("offset id", message.offset_message_id),
        ("tag", message.tag or "-"),
        ("keys", " ".join(message.keys) or "-"),
        ("born", f"{time_text(message.born_timestamp)} at {message.born_host[0]}"),
        ("stored", f"{time_text(message.store_timestamp)} at {message.store_host[0]}"),
        ("given back", f"{message.reconsume_times} times"),
        ("flag", str(message.flag)),
    ]
    others = message.properties.keys() - {"TAGS", "KEYS", "UNIQ_KEY"}
    return [*rows, *((name, message.properties[name]) for name in sorted(others))]


def print_details(message: ReceivedMessage) -> None:
    """Print everything about a message, and the beginning of its body."""
    rows = details(message)
    width = max(len(name) for name, _ in rows) + 2
    for name, value in rows:
        print(f"{shown(name):<{width}}{shown(value)}")
    body, is_whole = message.body_start(BODY_SIZE_MAX)
    if is_whole or not message.is_compressed:
        size = f"{len(body) if is_whole else len(message.stored_body):,} bytes"
    else:
        size = f"more than {len(body):,} bytes"
    print(f"{'body':<{width}}{size}")
    print(shown(bytes(body).decode(errors="backslashreplace"), keeps="\n\t"))
    if not is_whole:
        print("… --json shows all of it")


def print_body(message: ReceivedMessage) -> None:
    """Print the body and end the line: each byte for who reads a pipe, at a terminal what can be
    seen of it. One that cannot be decompressed is printed as it is stored, which is told.
    """
    try:
        body = message.body_view
    except BodyUnreadableError as error:
        print(f"ledgermq: printed as stored: {error}", file=sys.stderr)
        body = message.stored_body
    if sys.stdout.isatty():
        print(shown(bytes(body).decode(errors="backslashreplace"), keeps="\n\t"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.write(b"\n")
