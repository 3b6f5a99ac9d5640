"""``make site``: the documentation for a browser, of the pages as they are."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ledgermq.observer.console.console import FIRST_PAGE, SiteFiles

ROOT = Path(__file__).parents[1]
SIZE_MAX = 4_000_000
"""Bytes that each installation of the console carries."""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings_handlers") is None,
    reason="no MkDocs: LEDGERMQ_SITE=1 packaging/bootstrap.sh",
)


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "documentation_site", ROOT / "packaging" / "documentation_site.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages_of(order: list[Any]) -> Iterator[str]:
    """All pages of a navigation."""
    for one in order:
        if isinstance(one, str):
            yield one
        else:
            for below in one.values():
                yield from pages_of(below if isinstance(below, list) else [below])


@pytest.mark.long
def test_it_is_built_without_a_dead_link_and_fetches_nothing(
    site: ModuleType, tmp_path: Path
) -> None:
    status = site.main([str(tmp_path)])
    html = tmp_path / "html"
    index = json.loads((html / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    fetched = [
        (page.name, url)
        for page in html.rglob("*.html")
        for url in re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"?(\w+:)?//", page.read_text()
        )
    ]

    packed = SiteFiles(tmp_path / "site.zip")
    first = packed.read(FIRST_PAGE)

    assert status == 0
    # What the console brings has its pages, what they load, and the theme's licence.
    assert first is not None and first.media_type == "text/html"
    assert packed.read("mkdocs-material.LICENSE") and packed.read("search/search_index.json")
    assert (tmp_path / "site.zip").stat().st_size < SIZE_MAX
    assert {"docs/python/errors.html", "docs/operating/what-to-do.html"} <= found
    assert "docs/python/ledgermq.client.html#ledgermq.client.Admin.create_topic" in {
        entry["location"] for entry in index["docs"]
    }
    assert fetched == []


@pytest.mark.slow
def test_a_dead_link_and_a_heading_that_is_not_there_are_refused(
    site: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "pages").mkdir()
    shown = []
    for link in ("there.md", "there.md#a-heading", "gone.md", "there.md#no-heading", "folder/"):
        (tmp_path / "pages" / "index.md").write_text(f"# It\n\n[one]({link})\n")
        (tmp_path / "pages" / "there.md").write_text("# There\n\n## A heading\n")
        (tmp_path / "pages" / "iframe-worker.js").write_text("")
        shown.append(site.build(tmp_path, ["index.md", "there.md"]))

    assert shown == [0, 0, 1, 1, 1]


def test_the_navigation_has_every_page_for_users_once(site: ModuleType) -> None:
    told = list(pages_of(site.navigation()))
    folders = (ROOT / "docs" / name for name in ("python", "operating"))
    wanted = {str(page.relative_to(ROOT)) for folder in folders for page in folder.glob("*.md")}

    assert wanted - set(told) == set()
    assert len(told) == len(set(told))


def test_lists_are_indented_as_pythons_markdown_has_them(site: ModuleType) -> None:
    page = """\
Text:
- one
  goes on
  - within
lazy

1. first

   ```sh
   a  - b
   ```
2. second
"""
    assert (
        site.with_wide_lists(page)
        == """\
Text:

-   one
    goes on

    -   within
        lazy

1.  first

    ```sh
    a  - b
    ```
2.  second
"""
    )
