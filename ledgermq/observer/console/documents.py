"""Documents: the operating pages as HTML, and the section of them that helps with a trouble."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from ledgermq.observer.console.rendering import FOLDER

_INSTALLED = FOLDER / "documents"
PAGES = _INSTALLED if _INSTALLED.is_dir() else FOLDER.parents[2] / "docs" / "operating"
"""The operating pages: ``setup.py`` copies them into what it installs; a checkout has its own."""

_LINK = re.compile(r"\[+([^\[\]]*)\]+\([^)]*\)")
CONTENTS = "README"
"""The page that orders all others by what somebody wants to do."""

FOUND_MAX = 30
AROUND = 80
"""Characters before the first word that was looked for; twice as many come behind it."""


class Document(NamedTuple):
    """A page: its name, title, and HTML, to which anchors as GitHub's lead."""

    name: str
    title: str
    html: Markup


@lru_cache(1)
def contents() -> Markup:
    """All pages under what somebody wants to do."""
    tokens = _tokens(CONTENTS) or []
    begin = next((at for at, token in enumerate(tokens) if token.tag == "h2"), 0)
    return _rendered(tokens[begin:])


class FoundSection(NamedTuple):
    """A section of a page that has all words that were looked for.

    Attributes:
        link: where the console has it.
        text: where the first of them stands, with what is around it.
    """

    page: str
    section: str
    link: str
    text: str


def found(words: str) -> list[FoundSection]:
    """The first ``FOUND_MAX`` sections that have all ``words``, those first that are named so."""
    wanted = words.lower().split()
    if not wanted:
        return []
    hits = [
        one
        for one in _sections()
        if all(word in f"{one.page} {one.section} {one.text}".lower() for word in wanted)
    ]

    def is_further(one: FoundSection) -> tuple[bool, bool]:
        named = (one.section.lower(), one.page.lower())
        section, page = (all(word in name for word in wanted) for name in named)
        return not section, not page

    hits.sort(key=is_further)
    return [one._replace(text=_around(one.text, wanted[0])) for one in hits[:FOUND_MAX]]


def _around(text: str, word: str) -> str:
    at = max(0, text.lower().find(word) - AROUND)
    end = at + 3 * AROUND
    return f"{'…' if at else ''}{text[at:end]}{'…' if end < len(text) else ''}"


@lru_cache(1)
def _sections() -> list[FoundSection]:
    """All sections of all pages but the contents, with all of their words."""
    told: list[FoundSection] = []
    for name in sorted(_pages().keys() - {CONTENTS}):
        tokens = _tokens(name) or []
        page = next((_plain(one.content) for one in tokens if one.type == "inline"), name)
        here, words = FoundSection(page, page, f"/handbook/{name}", ""), list[str]()
        for at, token in enumerate(tokens):
            if token.type == "heading_open" and at:
                told.append(here._replace(text=_plain(" ".join(words))))
                title, words = _plain(tokens[at + 1].content), []
                here = FoundSection(page, title, f"/handbook/{name}#{token.attrs['id']}", "")
            elif token.type in ("inline", "fence") and tokens[at - 1].type != "heading_open":
                words.append(token.content)
        told.append(here._replace(text=_plain(" ".join(words))))
    return told


def _plain(text: str) -> str:
    """A text of a document without the signs for links and for code."""
    return " ".join(_LINK.sub(r"\1", text).replace("`", "").replace("**", "").split())


def document(name: str) -> Document | None:
    """The page of that name; None: there is none."""
    return _document(name) if name in _pages() else None


@lru_cache(16)
def _document(name: str) -> Document | None:
    tokens = _tokens(name)
    if tokens is None:
        return None
    title = next((one.content for one in tokens if one.type == "inline"), name)
    return Document(name, title.replace("`", ""), _rendered(tokens))


@lru_cache(64)
def section(see: str) -> Markup:
    """What stands under an anchor, as ``docs/operating/what-to-do.md#the-disk-is-full``; without
    an anchor the first paragraphs of the page. Empty: there is none.
    """
    path, _, anchor = see.partition("#")
    tokens = _tokens(path.rpartition("/")[2].removesuffix(".md"))
    if tokens is None:
        return Markup()
    begin = next(
        (at for at, token in enumerate(tokens) if token.attrs.get("id") == anchor or not anchor), -1
    )
    if begin < 0:
        return Markup()
    level = tokens[begin].tag
    end = next(
        (
            at
            for at in range(begin + 3, len(tokens))
            if tokens[at].type == "heading_open" and (not anchor or tokens[at].tag <= level)
        ),
        len(tokens),
    )
    # Without its heading, which the page around it gives.
    return _rendered(tokens[begin + 3 : end])


def address_of(see: str) -> str:
    """Where the console has the page that a reason names."""
    path, _, anchor = see.partition("#")
    name = path.rpartition("/")[2].removesuffix(".md")
    return f"/handbook/{name}" + (f"#{anchor}" if anchor else "")


_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")


@lru_cache(1)
def _pages() -> dict[str, Path]:
    """All pages by their names: what others ask for is looked up here, and never on the disk."""
    return {path.stem: path for path in PAGES.glob("*.md")}


def _tokens(name: str) -> list[Token] | None:
    path = _pages().get(name)
    if path is None:
        return None
    tokens = _markdown.parse(path.read_text(encoding="utf-8"))
    taken: set[str] = set()
    for at, token in enumerate(tokens):
        # A style in a page is refused by its policy.
        if token.attrs.pop("style", "") == "text-align:right":
            token.attrs["class"] = "number"
        if token.type == "heading_open":
            token.attrs["id"] = _anchor(tokens[at + 1].content, taken)
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs["href"] = _link(str(child.attrs["href"]))
            elif child.type == "image":
                child.type, child.tag = "text", ""
    return tokens


def _rendered(tokens: Sequence[Token]) -> Markup:
    """HTML of our own documents; html that stands in them is shown as text."""
    html: str = _markdown.renderer.render(tokens, _markdown.options, {})
    # Who has no mouse gets to what is wider than the screen by Tab.
    html = html.replace("<pre>", '<pre tabindex="0">')
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    return Markup(html.replace("</table>", "</table></div>"))  # noqa: S704 - no text of others


def _anchor(title: str, taken: set[str]) -> str:
    """The anchor of a title as GitHub makes it, unlike those in ``taken``, to which it is added."""
    plain = _LINK.sub(r"\1", title).lower()
    first = anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    number = 1
    while anchor in taken:
        anchor = f"{first}-{number}"
        number += 1
    taken.add(anchor)
    return anchor


def _link(target: str) -> str:
    """Where a link of a document leads within the console."""
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return target
    name = path.removesuffix(".md")
    if path.endswith(".md") and "/" not in path and (PAGES / path).is_file():
        return f"/handbook/{name}" + (f"#{anchor}" if anchor else "")
    # What lies elsewhere is not brought along.
    return "/handbook"
