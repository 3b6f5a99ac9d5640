"""Calls of the API that are verbs of the table: their fields, right and answer come from there."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from typing import Any

from ledgermq.observer.api.calls import ApiCall, Needs
from ledgermq.observer.api.fields import (
    BOOLEAN,
    INTEGER,
    INTEGERS,
    OBJECT,
    TEXT,
    TEXTS,
    CallField,
    Given,
)
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.verbs.needs import VerbNeed
from ledgermq.verbs.verb import NOTHING, Argument, Verb, arguments_of

_KINDS = {str: TEXT, int: INTEGER, bool: BOOLEAN, dict: OBJECT, list: INTEGERS}
_KEY_KINDS = {**_KINDS, list: TEXTS}
_NEEDS = {VerbNeed.USER: Needs.USER, VerbNeed.ADMIN: Needs.ADMIN}
_NO_FIELDS: Mapping[str, CallField] = {}


def verb_call(
    method: str,
    path: str,
    name: str,
    about: str,
    verb: type[Verb[Any]],
    *,
    needs: Needs | None = None,
    fields: Mapping[str, CallField] = _NO_FIELDS,
    fixed: Mapping[str, str] = NOTHING,
    without: Collection[str] = (),
) -> ApiCall:
    """The call that asks a verb. The broker checks bounds, and its refusal names them.

    Args:
        needs: told in the place of the verb's own right.
        fields: of arguments that are called otherwise here, or have bounds here, by argument.
        fixed: values of arguments that nobody says.
        without: arguments that cannot be said.
    """
    arguments = [
        one for one in arguments_of(verb) if one.name not in without and one.name not in fixed
    ]
    found = {one.name: _fields(one, fields.get(one.name)) for one in arguments}
    all_ = [field for row in found.values() for field in row]
    path_fields = tuple(field for field in all_ if f"{{{field.name}}}" in path)
    others = tuple(field for field in all_ if field not in path_fields)

    def answer(ask: Inquiries, given: Given) -> Awaitable[Json]:
        values: dict[str, object] = dict(fixed)
        for argument in arguments:
            said = given.said(field.name for field in found[argument.name])
            if argument.keys:
                values[argument.name] = said
            else:
                values.update((argument.name, value) for value in said.values())
        return ask.ask(verb(**values))

    in_query = method in ("GET", "DELETE")
    return ApiCall(
        method, path, name, about, needs or _NEEDS[verb.NEEDS.need], answer, dict(verb.shape()),
        path_fields=path_fields,
        query=others if in_query else (),
        body=() if in_query else others,
    )  # fmt: skip


def _fields(argument: Argument, instead: CallField | None) -> tuple[CallField, ...]:
    if instead is not None:
        return (instead,)
    if argument.keys:
        return tuple(CallField(key.name, _KEY_KINDS[key.kind], key.about) for key in argument.keys)
    return (
        CallField(
            argument.name, TEXTS if argument.texts else _KINDS[argument.kind], argument.about,
            is_needed=argument.is_needed, among=argument.among,
        ),
    )  # fmt: skip
