"""Fields of a request: what may be said in its query or its JSON body, and within which bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.observer.inquiries.message_inquiries import BODY_DEFAULT, BODY_MAX
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX, ROWS_DEFAULT
from ledgermq.verbs.verb import NUMBER_MAX

TEXT_SIZE_MAX = 4_096
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
ITEMS_MAX = 10_000
DEPTH_MAX = 4
"""Objects and lists within one another in a body; the fields want two."""

Value = str | int | bool | Sequence[str] | Sequence[int] | Mapping[str, object]
Values = dict[str, Value]

TEXT, INTEGER, BOOLEAN = "string", "integer", "boolean"
TEXTS, INTEGERS, OBJECT = "strings", "integers", "object"


class CallField(NamedTuple):
    """One of them.

    Attributes:
        kind: ``TEXT`` and so on.
        about: what it is, for the document.
        least, most: of an integer.
        among: the texts that it may be; empty: any.
        default: for the document; the inquiry has it itself.
    """

    name: str
    kind: str
    about: str
    is_needed: bool = False
    least: int = 0
    most: int = NUMBER_MAX
    among: tuple[str, ...] = ()
    default: str | int | bool | None = None


TOPIC = CallField("topic", TEXT, "Name of a topic", is_needed=True)
QUEUE = CallField("queue", INTEGER, "Number of a queue", most=QUEUE_ID_MAX, default=0)
OFFSET = CallField("offset", INTEGER, "Queue offset of the first one")
ALL = CallField("all", BOOLEAN, "Those of the system, too", default=False)
LIMIT = CallField(
    "limit", INTEGER, "So many at once", least=1, most=PAGE_ROWS_MAX, default=ROWS_DEFAULT
)
NEXT = CallField("after", TEXT, "The next of the page before")
_EACH = "Bytes of each body; of a longer one bodySize or bodyLongerThan is told"
BODY_SIZE = CallField("body_max", INTEGER, _EACH, most=BODY_MAX, default=BODY_DEFAULT)


class Given:
    """The values of a request, checked by its fields; what was left out is as the call says."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self._values.get(name, default)
        assert isinstance(value, str), name
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text, None where it was left out."""
        return self.text(name) if name in self._values else None

    def integer(self, name: str, default: int = 0) -> int:
        """A number."""
        value = self._values.get(name, default)
        assert isinstance(value, int), name
        return value

    def integer_or_none(self, name: str) -> int | None:
        """A number, None where it was left out."""
        return self.integer(name) if name in self._values else None

    def flag(self, name: str) -> bool:
        """False where it was left out."""
        return self._values.get(name, False) is True

    def integers_or_none(self, name: str) -> list[int] | None:
        """Numbers, None where they were left out."""
        value = self._values.get(name)
        return [int(one) for one in value] if isinstance(value, list) else None

    def said(self, names: Iterable[str]) -> dict[str, object]:
        """Those of ``names`` that were given."""
        return {name: self._values[name] for name in names if name in self._values}

    def others(self, *names: str) -> dict[str, object]:
        """All that was given, but for ``names``."""
        return {name: value for name, value in self._values.items() if name not in names}

    def numbers(self, *names: str) -> dict[str, bool | int]:
        """Numbers and flags that were given, but for ``names``."""
        found = self.others(*names)
        return {name: value for name, value in found.items() if isinstance(value, bool | int)}


def of_query(fields: Sequence[CallField], pairs: Iterable[tuple[str, str]]) -> Values:
    """The values of a query, by name; those that are left out are not there.

    Raises:
        ProtocolError: a name is none of them, stands twice, or its value is none for it.
    """
    known = {field.name: field for field in fields}
    values: Values = {}
    for name, text in pairs:
        field = known.get(name)
        if field is None:
            raise _unknown(name, known)
        if name in values:
            raise ProtocolError("parameter stands twice", name=name)
        values[name] = _of_text(field, text)
    _check_needed(fields, values)
    return values


def of_body(fields: Sequence[CallField], body: bytes) -> Values:
    """The values of a JSON object, by name; of no body at all there are none.

    Raises:
        ProtocolError: it is no such object, a name is none of them, or a value is none for it.
    """
    known = {field.name: field for field in fields}
    values: Values = {}
    for name, value in _object(body).items():
        field = known.get(name)
        if field is None:
            raise _unknown(name, known)
        values[name] = _of_json(field, value)
    _check_needed(fields, values)
    return values


def checked(field: CallField, value: Value) -> Value:
    """``value``, which is within the field's bounds.

    Raises:
        ProtocolError: it is not.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not field.least <= value <= field.most:
            bounds = {"minimum": field.least, "limit": field.most}
            raise ProtocolError(
                "number out of range", name=field.name, value=_shown(value), **bounds
            )
    elif isinstance(value, str):
        _check_text(field, value)
        if field.among and value not in field.among:
            raise ProtocolError(
                "not one of what it may be", name=field.name, value=value[:64], among=field.among
            )
    return value


def _of_text(field: CallField, text: str) -> Value:
    if field.kind == INTEGER:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 20:
            raise ProtocolError("not a whole number", name=field.name, value=text[:64])
        return checked(field, int(text))
    if field.kind == BOOLEAN:
        if text not in ("true", "false"):
            raise ProtocolError("neither true nor false", name=field.name, value=text[:64])
        return text == "true"
    assert field.kind == TEXT, field
    return checked(field, text)


def _of_json(field: CallField, value: object) -> Value:
    match field.kind, value:
        case "boolean", bool():
            return value
        case "integer", int() if not isinstance(value, bool):
            return checked(field, value)
        case "string", str():
            return checked(field, value)
        case "strings", list() if len(value) <= ITEMS_MAX:
            texts = [item for item in value if isinstance(item, str)]
            for text in texts:
                _check_text(field, text)
            if len(texts) == len(value):
                return texts
        case "integers", list() if len(value) <= ITEMS_MAX:
            numbers = [item for item in value if type(item) is int]
            for number in numbers:
                checked(field, number)
            if len(numbers) == len(value):
                return numbers
        case "object", dict() if len(value) <= ITEMS_MAX:
            return {str(key): item for key, item in value.items()}
    raise ProtocolError(
        "value is of another type", name=field.name, expected=field.kind, value=str(value)[:64]
    )


def _object(body: bytes) -> dict[str, object]:
    if not body:
        return {}
    try:
        value = loaded(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("body is not JSON in UTF-8", reason=str(error)[:200]) from error
    if not isinstance(value, dict):
        raise ProtocolError("body is not a JSON object", found=type(value).__name__)
    if _depth(value) > DEPTH_MAX:
        raise ProtocolError("JSON too deep", limit=DEPTH_MAX)
    return value


def loaded(body: bytes) -> object:
    """The JSON value of a body, in which no key stands twice: readers take the one or the other.

    Raises:
        ValueError, RecursionError: it is none.
    """
    value: object = json.loads(
        body.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_once
    )
    return value


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _depth(value: object) -> int:
    """Depth of objects and lists in one another; the search goes no deeper than it has to."""
    level: list[object] = [value]
    depth = 0
    while level and depth <= DEPTH_MAX:
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        depth += any(isinstance(one, dict | list) for one in level)
        level = inner
    return depth


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _check_text(field: CallField, text: str) -> None:
    if len(text) > TEXT_SIZE_MAX:
        raise ProtocolError("text too long", name=field.name, size=len(text), limit=TEXT_SIZE_MAX)
    if _UNSEEN.search(text):
        raise ProtocolError("text has letters that cannot be seen", name=field.name)


def _check_needed(fields: Sequence[CallField], values: Values) -> None:
    missing = [field.name for field in fields if field.is_needed and field.name not in values]
    if missing:
        raise ProtocolError("something is missing", names=missing)


def _unknown(name: str, known: Mapping[str, CallField]) -> ProtocolError:
    return ProtocolError("name not known here", name=name[:64], expected=sorted(known))


def _shown(number: int) -> int | str:
    return number if abs(number) <= NUMBER_MAX else "more than 64 bits"
