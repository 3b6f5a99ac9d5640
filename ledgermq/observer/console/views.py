"""Views: what a page of the console is made of, and what a request of one has asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request

from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.console.tables import COUNTED, Row, ShownTable
from ledgermq.observer.inquiries.inquirer import Inquirer, Sources
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.row_pages import PAGE_ROWS_MAX, page_of
from ledgermq.process.node_status import Health

ROWS_SHOWN = 100
"""Rows of a table that a page shows; an export has all."""

EXPORTED_MAX = 100_000
TEXT_MAX = 1_000
"""Characters of one thing that is asked for or typed."""

Form = Mapping[str, str]


class Fact(NamedTuple):
    """One thing to know; ``tone`` is ``ok``, ``warn``, ``bad``, or none."""

    title: str
    text: str
    tone: str = ""
    more: str = ""


class Chart(NamedTuple):
    """Curves over the last hour at most, of ``source`` (JSON: ``time`` and each of ``series``).

    Attributes:
        series: key and title of each curve.
        unit: ``number``, ``bytes`` or ``ms``, of all of them.
    """

    title: str
    source: str
    series: Sequence[tuple[str, str]]
    unit: str = "number"


class Field(NamedTuple):
    """One to be filled in; ``kind`` is an ``input``'s, ``textarea``, or ``select``, which has
    ``choices``.

    ``proposed``: values that a browser offers; others may be typed.
    """

    name: str
    title: str
    kind: str = "text"
    value: str = ""
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    is_needed: bool = False
    proposed: Sequence[str] = ()


class Change(NamedTuple):
    """A form by which something is changed.

    Attributes:
        act: which of the page's acts it is.
        typed: what has to be typed to confirm it; empty: nothing.
        is_dangerous: it takes something away.
    """

    act: str
    title: str
    button: str
    fields: Sequence[Field] = ()
    text: str = ""
    typed: str = ""
    is_dangerous: bool = False


class View(NamedTuple):
    """A page.

    Attributes:
        search: fields of a form that asks for this page again, and changes nothing.
        ways: addresses of pages that belong to this one, and their titles.
        values: for a template of its own.
    """

    title: str
    text: str = ""
    facts: Sequence[Fact] = ()
    charts: Sequence[Chart] = ()
    search: Sequence[Field] = ()
    tables: Sequence[ShownTable] = ()
    changes: Sequence[Change] = ()
    back: tuple[str, str] | None = None
    ways: Sequence[tuple[str, str]] = ()
    template: str = "page.html"
    values: Mapping[str, object] = {}
    status: int = HTTPStatus.OK


class Done(NamedTuple):
    """A change was made: what to say of it, and where to go on."""

    text: str
    to: str


class PageAsked:
    """One request of a page.

    Attributes:
        inquirer, inquiries: with the caller's rights.
        health: the node's; None: its supervisor does not answer.
        export: the table of which all rows are wanted; empty: a page is.
    """

    def __init__(
        self, request: Request, caller: HttpCaller, sources: Sources, health: Health | None
    ) -> None:
        self.request = request
        self.caller = caller
        self.inquirer = Inquirer(sources, caller)
        self.inquiries = Inquiries(sources, caller)
        self.health = health
        self.export = request.query_params.get("table", "") if self._is_export else ""

    @property
    def _is_export(self) -> bool:
        return self.request.query_params.get("export", "") in ("csv", "json")

    @property
    def may_change(self) -> bool:
        """Whether forms are of any use to the caller; the broker has the last word."""
        return not self.caller.only_looks

    @property
    def is_operator(self) -> bool:
        """Whether the caller may do what only operators may."""
        try:
            self.inquirer.check_operator()
        except NoPermissionError:
            return False
        return True

    def text(self, name: str) -> str:
        """What was asked for under ``name``; empty: nothing.

        Raises:
            ConfigError: it is too long.
        """
        return checked_text(name, self.request.query_params.get(name, ""))

    def part(self, name: str) -> str:
        """A part of the address."""
        return checked_text(name, str(self.request.path_params[name]))

    def number(self, name: str) -> int | None:
        """The same as a number from 0 on; None: nothing."""
        return number_of(name, self.text(name))

    def address(self, **changes: object) -> str:
        """This page with other things asked for; None and empty ones are left out."""
        asked = {
            name: value
            for name, value in self.request.query_params.items()
            if name not in ("export", "table")
        }
        asked.update({name: str(value) for name, value in changes.items()})
        return address(quote(self.request.scope["path"]), **asked)

    async def rows(
        self, table: str, find: Callable[[int, str], Awaitable[Mapping[str, object]]], key: str
    ) -> tuple[list[Row], str]:
        """A page of rows, and the address of those behind; where ``table`` is exported, all rows.

        Args:
            find: gives rows under ``key``, and ``next``, of a limit and what a page before told.
        """
        if self.export != table:
            found = await find(ROWS_SHOWN, self.text(f"{table}-after"))
            next_ = found.get("next")
            more = self.address(**{f"{table}-after": next_}) if next_ else ""
            return rows_of(found, key), more
        rows: list[Row] = []
        after: object = ""
        while after is not None and len(rows) < EXPORTED_MAX:
            found = await find(PAGE_ROWS_MAX, str(after))
            rows += rows_of(found, key)
            after = found.get("next")
        return rows, ""

    async def with_courses(
        self, table: ShownTable, course: Callable[[Row], Sequence[float]]
    ) -> ShownTable:
        """``table`` with the ``course`` of each of its rows, which a thread makes: of a thousand
        that takes longer than others should wait.
        """

        def make() -> list[Row]:
            return [{**row, "course": course(row)} for row in table.rows]

        return replace(table, rows=await self.inquirer.sources.looks.make(make))

    def sorted_page(self, table: ShownTable, first: str) -> ShownTable:
        """``table``, which has all rows there are, sorted as was asked for, and a page of it, or
        all rows where it is exported.

        Args:
            first: the column by which it is sorted where nothing was asked, behind a minus from
                the top down.
        """
        keys = {column.key for column in table.columns if column.show not in ("list", "spark")}
        asked = self.text(f"{table.name}-sort") or first
        key, is_down = asked.removeprefix("-"), asked.startswith("-")
        if key not in keys:
            raise ConfigError("no column to sort by", sort=key[:64])
        rows = sorted(table.rows, key=lambda row: sort_key(row.get(key)), reverse=is_down)
        links = {}
        for column in table.columns:
            if column.key in keys:
                # What counts most comes first; names begin at A.
                turned = key == column.key and is_down == (column.show in COUNTED)
                sign = "-" if (column.show in COUNTED) != turned else ""
                asks = {f"{table.name}-sort": f"{sign}{column.key}", f"{table.name}-page": ""}
                links[column.key] = self.address(**asks)
        next_ = None
        if self.export != table.name:
            rows, next_ = page_of(rows, self.text(f"{table.name}-page"), ROWS_SHOWN)
        more = self.address(**{f"{table.name}-page": next_}) if next_ else ""
        return replace(table, rows=rows, next_=more, sorts=links, sorted_by=(key, is_down))


def sort_key(value: object) -> tuple[bool, float, str]:
    """What rows are compared by: what is not known comes before all else, numbers before texts."""
    if isinstance(value, bool | int | float):
        return True, float(value), ""
    return value is not None, 0.0, str(value or "").lower()


Show = Callable[[PageAsked], Awaitable[View]]
Act = Callable[[PageAsked, Form], Awaitable[Done]]


class ConsolePage(NamedTuple):
    """Where a page is, what it shows, and what may be done there, by the name of the act."""

    path: str
    show: Show
    acts: Mapping[str, Act] = {}


def rows_of(found: Mapping[str, object], key: str) -> list[Row]:
    """Rows that an inquiry told under ``key``."""
    rows = found[key]
    assert isinstance(rows, list | tuple), key
    return list(rows)


def path_of(*parts: object) -> str:
    """An address whose parts may be any text."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def address(path: str, **asked: object) -> str:
    """``path`` with what is asked for; what is None or empty is left out."""
    left = {name: str(value) for name, value in asked.items() if value not in (None, "")}
    return f"{path}?{urlencode(left)}" if left else path


def checked_text(name: str, text: str) -> str:
    """``text`` without blanks around it.

    Raises:
        ConfigError: it is too long.
    """
    if len(text) > TEXT_MAX:
        raise ConfigError("text too long", field=name, length=len(text), limit=TEXT_MAX)
    return text.strip()


def number_of(name: str, text: str) -> int | None:
    """A number from 0 on; None: nothing was given.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ConfigError("not a number from 0 on", field=name, value=text[:64])
    return int(text)


def needed_number(form: Form, name: str) -> int:
    """A number from 0 on of a form.

    Raises:
        ConfigError: it is none.
    """
    number = number_of(name, form.get(name, ""))
    if number is None:
        raise ConfigError("number missing", field=name)
    return number


def check_typed(form: Form, wanted: str) -> None:
    """Have what is dear to undo confirmed.

    Raises:
        ConfigError: something else was typed.
    """
    if form.get("typed", "") != wanted:
        raise ConfigError("nothing was done: the name was not typed to confirm it", name=wanted)
