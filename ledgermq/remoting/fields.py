"""Typed fields of a command, which are texts; parsed by Java's rules for numbers and booleans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fastjson import decode_body

Fields = Mapping[str, str]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def text(fields: Fields, name: str) -> str:
    """A text that must be there; it may be empty.

    Raises:
        ProtocolError: it is missing.
    """
    value = fields.get(name)
    if value is None:
        raise ProtocolError("field is missing", field=name)
    return value


def int32(fields: Fields, name: str, default: int | None = None) -> int:
    """A number of Java's ``int``; without a default it must be there.

    Raises:
        ProtocolError: it is missing, no number, or too large.
    """
    value = fields.get(name)
    if value is not None and len(value) < 10 and value.isdecimal() and value.isascii():
        return int(value)
    return _integer(fields, name, default, INT32_MAX)


def int64(fields: Fields, name: str, default: int | None = None) -> int:
    """A number of Java's ``long``; see ``int32``."""
    value = fields.get(name)
    if value is not None and len(value) < 19 and value.isdecimal() and value.isascii():
        return int(value)
    return _integer(fields, name, default, INT64_MAX)


def flag(fields: Fields, name: str) -> bool:
    """True when the text is ``true``, in any case of letters (``Boolean.parseBoolean``)."""
    value = fields.get(name)
    return value is not None and value.lower() == "true"


def _integer(fields: Fields, name: str, default: int | None, limit: int) -> int:
    value = fields.get(name)
    if value is None:
        if default is None:
            raise ProtocolError("field is missing", field=name)
        return default
    digits = value[1:] if value[:1] in ("-", "+") else value
    # int() alone would take blanks, underscores and the digits of other scripts.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(limit))):
        raise ProtocolError("field is not a number", field=name, value=value[:64], limit=limit)
    number = int(value)
    if not -limit - 1 <= number <= limit:
        raise ProtocolError("field is too large", field=name, value=value, limit=limit)
    return number


Kind = TypeVar("Kind", str, int, bool)


def json_field(
    fields: Mapping[str, object], name: str, kind: type[Kind], default: Kind | None = None
) -> Kind:
    """A field of a JSON object; a null is as if it were not there.

    Raises:
        ProtocolError: it is of another type, or missing and has no ``default``.
    """
    found = fields.get(name)
    if found is None:
        if default is None:
            raise ProtocolError("field is missing", field=name)
        return default
    # Python's booleans are integers, and JSON's are not.
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ProtocolError(
            "field is of another type", field=name, type=type(found).__name__, wanted=kind.__name__
        )
    return found


def objects_in(body: bytes | memoryview, name: str) -> list[dict[str, object]]:
    """The objects that the list ``name`` of a JSON body holds.

    Raises:
        ProtocolError: there is no such list, or something else is in it.
    """
    found = decode_body(body).get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ProtocolError("body has no list of objects", field=name)
    return found
