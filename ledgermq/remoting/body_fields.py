"""Typed fields of a JSON body, as texts of a header have their types in ``fields``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fastjson import decode_body

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
