#!/usr/bin/env python3
"""Builds the documentation as a site: its pages as they are, in the order of their indexes.

    make site                                      # build/site/html/index.html
    .venv/bin/python packaging/documentation_site.py FOLDER        # FOLDER/html/index.html

Beside html/ there is site.zip, which the console brings to browsers: all of it but what only
people who change the theme would read.

Nothing is fetched. Pages are all of docs/, what is beside it and linked from there, and a reference
of the client from its docstrings. The navigation is read from the tables of docs/python/README.md
and docs/operating/README.md. A link that leads nowhere, or to a heading that is not there, ends it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "packaging" / "site" / "mkdocs.yml"
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_MARKER = re.compile(r" *(?:[-*+]|\d+[.)])(?: +|$)")
INDENT = 4
"""Columns of what is within an item of a list; pages have as many as the marker takes."""

REFERENCE = ("ledgermq.client", "ledgermq.client.aio")
"""Modules that applications import from."""

LEFT_OUT = ("assets/javascripts/lunr/", "sitemap.xml", "objects.inv")
"""Files, by how their names begin, that no page asks for: words of languages other than ours, and
what machines read where a site has an address."""

EPOCH_MIN = 315_532_800
"""The first moment that an archive can name, in 1980."""

DEVELOPERS = {
    "Architecture": "docs/architecture.md",
    "Contributing": "CONTRIBUTING.md",
    "A first change": "docs/first-change.md",
    "A first request code": "docs/first-code.md",
    "Internals": "docs/internals/README.md",
    "Decisions": "docs/decisions/README.md",
    "Tests": "docs/testing.md",
    "Simulation": "docs/simulation.md",
    "Packages": "docs/packaging.md",
}


def linked_files() -> Iterator[Path]:
    """Pages of docs/, and whatever they lead to, that is a file of the tree."""
    waiting = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        yield path
        if path.suffix != ".md":
            continue
        for link in _LINK.findall(path.read_text()):
            target = (path.parent / link).resolve()
            if "://" not in link and target.is_file() and target not in seen:
                seen.add(target)
                waiting.append(target)


def with_wide_lists(text: str) -> str:
    """The page ``text`` with its lists as Python's Markdown wants them: indented by four columns,
    and with an empty line before them."""
    lines = text.splitlines()
    depth, strip = [0] * len(lines), [0] * len(lines)
    items: dict[int, int] = {}
    lists: set[int] = set()
    within = 0
    for token in MarkdownIt().parse(text):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            within += 1
            assert token.map is not None
            lists.add(token.map[0])
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            within -= 1
        elif token.type == "list_item_open":
            assert token.map is not None
            first, end = token.map
            marker = _MARKER.match(lines[first], strip[first])
            offset = marker.end() if marker else strip[first]
            items[first] = within
            for number in range(first, end):
                depth[number], strip[number] = within, offset
    found: list[str] = []
    for number, line in enumerate(lines):
        margin = " " * (INDENT * depth[number])
        if number in lists and found and found[-1].strip():
            found.append("")
        if number in items:
            outer = " " * (INDENT * (items[number] - 1))
            marker_text = line[: strip[number]].strip()
            found.append(f"{outer}{marker_text:<{INDENT}}{line[strip[number] :]}")
        elif depth[number]:
            # A line that goes on with a paragraph may stand further to the left.
            own = line[strip[number] :] if not line[: strip[number]].strip() else line.lstrip()
            found.append((margin + own).rstrip())
        else:
            found.append(line)
    return "\n".join(found) + "\n"


def stage(pages: Path) -> None:
    """Lay the pages out below ``pages`` as they lie in the tree."""
    for path in linked_files():
        target = pages / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(with_wide_lists(path.read_text()))
        else:
            shutil.copyfile(path, target)
    for name in ("iframe-worker.js", "mkdocs-material.LICENSE"):
        shutil.copyfile(ROOT / "packaging" / "site" / name, pages / name)
    for name in REFERENCE:
        names = resolve_name(name).__all__
        (pages / reference_of(name)).write_text(
            "\n\n".join([f"# {name}", *(f"::: {name}.{one}" for one in names), ""])
        )


def reference_of(module: str) -> str:
    """The page that has the docstrings of a module."""
    return f"docs/python/{module}.md"


def title_of(page: Path) -> str:
    """The first heading of a page."""
    return next(line[2:] for line in page.read_text().splitlines() if line.startswith("# "))


def section(index: str) -> list[Any]:
    """The navigation below an index: its headings, and the pages of each one's tables."""
    folder = (ROOT / index).parent
    found: list[Any] = [index]
    here = found
    for line in (ROOT / index).read_text().splitlines():
        if line.startswith("## "):
            here = []
            found.append({line[3:]: here})
        elif line.startswith("| "):
            for link in re.findall(r"\]\((\w[\w-]*\.md)\)", line):
                here.append({title_of(folder / link): str((folder / link).relative_to(ROOT))})
    return [one for one in found if isinstance(one, str) or all(one.values())]


def navigation() -> list[Any]:
    """All of the navigation, in the order of what one wants to do."""
    reference = [{name: reference_of(name)} for name in REFERENCE]
    formats = sorted((ROOT / "docs" / "formats").glob("*.md"))
    return [
        {"Begin": ["README.md", "docs/README.md"]},
        {"Python": [*section("docs/python/README.md"), {"Reference": reference}]},
        {"Operate": section("docs/operating/README.md")},
        {"Formats": [{title_of(one): str(one.relative_to(ROOT))} for one in formats]},
        {"Change it": [{title: page} for title, page in DEVELOPERS.items()]},
        {"What is new": ["CHANGELOG.md"]},
    ]


def build(folder: Path, order: list[Any]) -> int:
    """Make ``folder/html`` of ``folder/pages``; 1 where a link is dead."""
    config = folder / "mkdocs.yml"
    told = {"INHERIT": str(SETTINGS), "docs_dir": "pages", "site_dir": "html", "nav": order}
    config.write_text(yaml.safe_dump(told, sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    done = subprocess.run(  # noqa: S603 - our own
        command, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    # What it does is no news; told to be quiet, it would not count warnings either.
    sys.stderr.writelines(
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO")
    )
    return done.returncode


def pack(html: Path, archive: Path) -> None:
    """Put the site into one archive, the same bytes from the same files."""
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), EPOCH_MIN))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(html.rglob("*")):
            name = path.relative_to(html).as_posix()
            if path.is_dir() or name.endswith(".map") or name.startswith(LEFT_OUT):
                continue
            info = zipfile.ZipInfo(name, moment[:6])
            info.external_attr = 0o644 << 16
            packed.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def main(words: Sequence[str]) -> int:
    """Build it; 1 where a link is dead."""
    folder = Path(words[0] if words else ROOT / "build" / "site")
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder / "pages")
    status = build(folder, navigation())
    if status == 0:
        pack(folder / "html", folder / "site.zip")
        print(folder / "html" / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
