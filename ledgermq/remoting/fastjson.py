"""JSON in fastjson's dialect: integers and objects as keys, references to earlier objects.

Bodies of the protocol have both (``{0:"host:port"}``, ``{{"queueId":0,"topic":"t"}:7}``), and no
JSON library reads them. They are made into JSON first: a key that is no text becomes the text of
itself, and is told apart by who knows the body.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.whole_text import may_be_cut, whole

LEVELS_MAX = 64
JSON_SIZE_MAX = 1024 * 1024
"""Thousands of queues, or groups: what is larger takes tens of milliseconds to read."""

LOOSE_SIZE_MAX = 256 * 1024
"""Most bytes of what is no JSON and is read character by character, a microsecond each."""

# One for all: ``json.dumps`` makes another each time, and tables have thousands of rows.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def decode_body(body: bytes | memoryview, *, size_max: int = JSON_SIZE_MAX) -> dict[str, object]:
    """The object in a body; keys that are integers or objects are their compact JSON text.

    An empty body is an empty object, as fastjson's null becomes in most places. A reference
    (``{"$ref":…}``) stays as it is.

    Raises:
        ProtocolError: it is too large, no JSON object even so, or nested too deep. Larger than
            ``LOOSE_SIZE_MAX`` it has to be JSON.
    """
    if len(body) > size_max:
        raise ProtocolError("body is too large for JSON", size=len(body), limit=size_max)
    if not len(body):
        return {}
    try:
        content = bytes(body).decode()
        try:
            found: object = json.loads(content)
        except ValueError:
            if len(content) > LOOSE_SIZE_MAX:
                raise
            found = json.loads(_with_text_keys(content))
        if may_be_cut(content):
            found = whole(found)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("body is not JSON", reason=str(error)[:100]) from error
    if not isinstance(found, dict):
        raise ProtocolError("body is not a JSON object", found=type(found).__name__)
    return found


def encode_body(body: Mapping[str, object]) -> bytes:
    """Compact JSON, as all clients read it; integer keys of mappings get quotes."""
    return _encode(body).encode(errors="replace")


def encode_queue_table(rows: Iterable[tuple[str, str, int, object]]) -> bytes:
    """A map whose keys are queues, in the form that Java and Go read: raw objects as keys.

    Args:
        rows: broker's name, topic, queue id, and the value.
    """
    entries = []
    for broker, topic, queue_id, value in rows:
        key = _compact({"brokerName": broker, "queueId": queue_id, "topic": topic})
        entries.append(f"{key}:{_compact(value)}")
    return ("{" + ",".join(entries) + "}").encode(errors="replace")


def _compact(value: object) -> str:
    return _encode(value)


class _Reader:
    """Goes through fastjson's text once, and writes JSON."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._decoder = json.JSONDecoder()

    def value(self, at: int, depth: int) -> tuple[str, int]:
        """The value at ``at`` as JSON, and where it ends."""
        if depth > LEVELS_MAX:
            raise ProtocolError("body is nested too deep", limit=LEVELS_MAX)
        at = self._skip(at)
        mark = self._content[at : at + 1]
        if mark == "{":
            return self._object(at + 1, depth)
        if mark == "[":
            return self._array(at + 1, depth)
        return self._scalar(at)

    def end(self, at: int) -> None:
        """Nothing but blanks may follow."""
        if self._skip(at) != len(self._content):
            raise ValueError(f"something stands behind the value: char {at}")

    def _scalar(self, at: int) -> tuple[str, int]:
        _, end = self._decoder.raw_decode(self._content, at)
        return self._content[at:end], end

    def _object(self, at: int, depth: int) -> tuple[str, int]:
        parts: list[str] = []
        at = self._skip(at)
        while self._content[at : at + 1] != "}":
            if parts:
                at = self._skip(self._expect(",", at))
            key, at = self.value(at, depth + 1)
            at = self._expect(":", self._skip(at))
            value, at = self.value(at, depth + 1)
            parts.append((key if key.startswith('"') else json.dumps(key)) + ":" + value)
            at = self._skip(at)
        return "{" + ",".join(parts) + "}", at + 1

    def _array(self, at: int, depth: int) -> tuple[str, int]:
        parts: list[str] = []
        at = self._skip(at)
        while self._content[at : at + 1] != "]":
            if parts:
                at = self._expect(",", at)
            value, at = self.value(at, depth + 1)
            parts.append(value)
            at = self._skip(at)
        return "[" + ",".join(parts) + "]", at + 1

    def _expect(self, mark: str, at: int) -> int:
        if self._content[at : at + 1] != mark:
            raise ValueError(f"{mark} expected: char {at}")
        return at + 1

    def _skip(self, at: int) -> int:
        content = self._content
        while at < len(content) and content[at] in " \t\r\n":
            at += 1
        return at


def _with_text_keys(content: str) -> str:
    reader = _Reader(content)
    found, end = reader.value(0, 0)
    reader.end(end)
    return found
