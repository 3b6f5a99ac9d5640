"""The programs of docs/python, and of README, run against a node and print what stands behind them.

All ``python`` blocks of a page are one program, in their order; its ``text`` blocks are its output.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process.conftest import Node
from tests.process.node_start import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "python").glob("*.md"))]
ADDRESS = "ipc:///run/ledgermq"
STRICT = (
    "import warnings; warnings.simplefilter('error'); warnings.filterwarnings('ignore', '.*fork')"
)
"""In the place of a page's title. A process with threads had better not fork, says Python 3.12."""

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)

NODE: dict[str, object] = {}


def program_of(page: str) -> str:
    """The program of a page; each line has the number that it has there."""
    lines = [STRICT, *[""] * page.count("\n")]
    for block in _BLOCK.finditer(page):
        if block[1] == "python":
            first = page.count("\n", 0, block.start(2))
            code = block[2].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


def output_of(page: str) -> str:
    return "".join(block[2] for block in _BLOCK.finditer(page) if block[1] == "text")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem) for page in PAGES if "```python" in page.read_text()],
)
def test_a_page_does_what_it_says(node: Node, tmp_path: Path, page: Path) -> None:
    text = page.read_text()
    program = tmp_path / f"{page.stem}.py"
    program.write_text(program_of(text).replace(ADDRESS, node.address))
    done = run_python(program)

    assert (done.stderr, done.returncode) == ("", 0)
    if page.parent != ROOT:
        assert done.stdout == output_of(text)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES[1:]])
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) < 200
