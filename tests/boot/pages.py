"""Goes through a page of docs/operating on booted hosts, as its reader would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from tests.boot.machine import Machine
from tests.boot.root import keep
from tests.operating_commands import Told, blocks_of, commands_in

FIRST = "10.0.0.1"
DOCTOR_FAILS = 4
LONG_S = 300.0

Given = Sequence[tuple[str, Callable[[], object]]]
"""What has to be so before a command that begins so; each once, in the order of the page."""


class Reader:
    """Types what the pages tell, in their order, and takes note of what does not do what it says.

    Attributes:
        hosts: by address.
        wrong: commands that failed, with what they said.
        typed: all that were typed, with what they printed.
    """

    def __init__(self, hosts: Mapping[str, Machine]) -> None:
        self.hosts = hosts
        self.wrong: list[str] = []
        self.typed: dict[str, str] = {}
        self._transcript: list[str] = []

    def read(
        self,
        document: str,
        *,
        write: Callable[[str], None] | None = None,
        given: Given = (),
        endless: frozenset[str] = frozenset(),
        instead: Mapping[str, Callable[[], str]] | None = None,
        part: tuple[str, str] | None = None,
    ) -> None:
        """Do what a page says, from top to bottom.

        Args:
            document: its name.
            write: is given the text of each block of settings where it stands.
            given: what has to be so before a command.
            endless: commands that run until they are stopped, which is at the page's end, or when
                the next one begins.
            instead: words that stand for what is different everywhere, and what is here.
            part: how the first command of the page begins that is typed, and how the first behind
                it begins that is not; the whole page without.
        """
        waiting = list(given)
        begins, ends = part or ("", "")
        is_read = part is None
        with ExitStack() as running:
            for block in blocks_of(document):
                if block.language == "toml" and write is not None and is_read:
                    write(block.text)
                for told in commands_in(document, block):
                    if begins and told.text.startswith(begins):
                        begins, is_read = "", True
                    elif not begins and ends and told.text.startswith(ends):
                        is_read = False
                    if not is_read:
                        continue
                    if waiting and told.text.startswith(waiting[0][0]):
                        waiting.pop(0)[1]()
                    text = told.command
                    for word, here in (instead or {}).items():
                        if word in text:
                            text = text.replace(word, here())
                    if text in endless:
                        running.close()
                        running.enter_context(self.hosts[FIRST].running(text))
                    elif told.prompt:
                        self._type(told, text)
        assert waiting == [], f"{document} has no such commands any more: {waiting}"

    def _type(self, told: Told, text: str) -> None:
        for address in self._places(told.prompt):
            answer = "y\n" if text.startswith("apt ") else ""
            done = self.hosts[address].run(text, check=False, timeout_s=LONG_S, typed=answer)
            allowed = {0, DOCTOR_FAILS} if text.startswith("ledgermq doctor") else {0}
            said = f"{done.stdout}{done.stderr}"
            self.typed[told.text] = said
            ended = f"exit status {done.returncode}\n" if done.returncode else ""
            self._transcript.append(f"{address} {told.prompt} {text}\n{said}{ended}")
            keep(f"typed-{told.document}.txt", "\n".join(self._transcript))
            if done.returncode not in allowed:
                self.wrong.append(
                    f"{told.document}, {address}: {text}\nexit status {done.returncode}\n{said}"
                )

    def _places(self, prompt: str) -> list[str]:
        if prompt == "each#":
            return list(self.hosts)
        return [FIRST if prompt in ("$", "#") else prompt.removesuffix("#")]
