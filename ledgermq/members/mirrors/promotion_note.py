"""Note of a promotion: where the copy ended of which a group was made, and who may begin beside it.

Here is what the supervisor asks before it forks: nothing that takes numpy, whose library starts
threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.checked_document import read_document
from ledgermq.store.files.properties_file import decode_current_term
from ledgermq.store.files.small_file import read_file
from ledgermq.store.files.store_paths import StorePaths

FILE = "promoted"


@dataclass(frozen=True, slots=True)
class Promotion:
    """Where a copy ended of which a group was made.

    Attributes:
        cluster, group: names of the group.
        begin: where the last entry of the copy begins.
        end: position behind it.
        index, entry_term, chain: of the last entry; its CRC over all entries before it, too.
        term: what the promoted group begins behind.
        at_ms: when it was promoted, epoch milliseconds.
    """

    cluster: str
    group: str
    begin: Position
    end: Position
    index: Index
    entry_term: Term
    chain: int
    term: Term
    at_ms: int


def read_promotion(path: Path) -> Promotion:
    """The promotion that a file says: the store's own, or a copy of it.

    Raises:
        ConfigError: there is none.
        CorruptLogError: it is not whole.
        StorageError: it cannot be read.
    """
    document = read_document(path)
    if document is None:
        raise ConfigError("no promotion is noted there", file=str(path))
    texts = [document.get(name) for name in ("cluster", "group")]
    numbers = [
        document.get(name)
        for name in ("begin", "end", "index", "entry_term", "chain", "term", "at_ms")
    ]
    cluster, group = (str(text) for text in texts)
    if not all(isinstance(number, int) for number in numbers):
        raise CorruptLogError("note of a promotion lacks a number", file=str(path))
    begin, end, index, entry_term, chain, term, at_ms = (int(str(number)) for number in numbers)
    copied = Position(begin), Position(end), Index(index), Term(entry_term), chain
    return Promotion(cluster, group, *copied, Term(term), at_ms)


def check_begins_alone(settings: Settings) -> None:
    """Refuse other members where a promoted store has not led yet.

    They have nothing: a majority of them would elect one of themselves, whose log is everybody's
    then. What they get once this node leads is its log.

    Raises:
        ConfigError: ``node.peers`` names another one, and no term has begun since the promotion.
        CorruptLogError: what is noted of the promotion, or of the term, is not whole.
        StorageError: it cannot be read.
    """
    own = settings.node.self_id
    if all(peer.partition("-")[0] == own for peer in settings.node.peers):
        return
    paths = StorePaths.of(settings)
    note = paths.own / FILE
    if paths.current_term is None or not note.exists():
        return
    content = read_file(paths.current_term)
    promotion = read_promotion(note)
    begun = None if content is None else decode_current_term(content, file=str(paths.current_term))
    if begun is None or begun.term <= promotion.term:
        raise ConfigError(
            "a promoted store begins alone: name this node only until it leads, and add the others"
            " with ledgermq raft add",
            peers=settings.node.peers,
            setting="node.peers",
        )
