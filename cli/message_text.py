"""Messages as text for people: a line each, or everything about one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ledgermq.client.received import ReceivedMessage

PREVIEW_SIZE_MAX = 60
BODY_SIZE_MAX = 4_096
"""More of a body is not shown without being asked for."""


def shown(text: str, *, keeps: str = "") -> str:
    """``text`` with a dot for each letter that cannot be seen: others may have chosen it, and a
    terminal does what such letters say.

    Args:
        keeps: letters that stay all the same.
    """
    return "".join(one if one.isprintable() or one in keeps else "·" for one in text)


def time_text(timestamp_ms: int) -> str:
    """A time of a message in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def preview(message: ReceivedMessage) -> str:
    """The beginning of the body, on one line."""
    body = bytes(message.body[: PREVIEW_SIZE_MAX + 1])
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
    body = bytes(message.body)
    print(f"{'body':<{width}}{len(body):,} bytes")
    print(shown(body[:BODY_SIZE_MAX].decode(errors="backslashreplace"), keeps="\n\t"))
    if len(body) > BODY_SIZE_MAX:
        print(f"… {len(body) - BODY_SIZE_MAX:,} bytes more: --json shows all of it")


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns as wide as their widest; numbers to the right."""
    lines = [list(head), *(list(map(shown, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    is_number = [
        all(_is_number(line[column]) for line in lines[1:]) and len(lines) > 1
        for column in range(len(head))
    ]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").isdecimal()
