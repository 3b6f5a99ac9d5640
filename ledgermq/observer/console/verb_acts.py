"""Acts of the console that are verbs of the table: what a form says is read by what the struct says
of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ledgermq.observer.console.views import (
    Act,
    Done,
    Field,
    Form,
    PageAsked,
    check_typed,
    checked_text,
    needed_number,
    number_of,
)
from ledgermq.verbs.verb import Argument, Key, Verb, arguments_of


def verb_act(
    verb: type[Verb[Any]],
    fields: Sequence[Field],
    done: str,
    to: str,
    *,
    typed: str = "",
    **others: object,
) -> Act:
    """The act that asks a verb with what a form says, and what the address of the page names.

    Args:
        fields: those of the form that are arguments, or keys of one.
        done, to: what is said, and where to go on, with arguments in braces.
        typed: the argument that has to be typed once more to confirm it.
        others: arguments that are so where the form does not say them.
    """
    arguments = arguments_of(verb)
    names = {one.name for one in arguments} | {key.name for one in arguments for key in one.keys}
    assert names.issuperset(field.name for field in fields), (verb, fields)

    async def act(asked: PageAsked, form: Form) -> Done:
        given = {**others, **{name: asked.part(name) for name in asked.request.path_params}}
        for one in arguments:
            if one.keys:
                given[one.name] = _said(one.keys, fields, form)
        given |= _said(arguments, fields, form)
        if typed:
            check_typed(form, str(given[typed]))
        await asked.inquiries.ask(verb(**given))
        parts = {name: quote(str(value), safe="") for name, value in given.items()}
        return Done(done.format(**given), to.format(**parts))

    return act


def _said(
    wanted: Sequence[Argument] | Sequence[Key], fields: Sequence[Field], form: Form
) -> dict[str, object]:
    """Those of ``fields`` that are wanted, without those that were left empty."""
    kinds = {one.name: one.kind for one in wanted}
    found = {one.name: _value(kinds[one.name], one, form) for one in fields if one.name in kinds}
    return {name: value for name, value in found.items() if value is not None}


def _value(kind: type, field: Field, form: Form) -> object:
    text = form.get(field.name, "")
    if kind is bool:
        return text == "yes"
    if kind is int:
        return needed_number(form, field.name) if field.is_needed else number_of(field.name, text)
    if kind is list:
        return text.replace(",", " ").split()
    if field.kind == "password":
        return text or None
    return checked_text(field.name, text)
