"""Questions for documents and their answers, as a CALL and its RESULT carry them.

A document is larger than a RESULT may be: it comes in pieces, each asked for by its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.formats.digest import content_digest
from ledgermq.formats.ed25519 import PUBLIC_SIZE
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.names.clusters import NAME_LENGTH_MAX
from ledgermq.rules.cluster.cluster_commands import read_chain, read_nodes
from ledgermq.rules.cluster.cluster_document import DOCUMENT_SIZE_MAX, read_point
from ledgermq.rules.cluster.document_asker import HOLD_MS
from ledgermq.rules.cluster.document_desk import DocumentReply, DocumentRequest
from ledgermq.rules.cluster.json_objects import decoded, encoded, integer_of, text_of

DOCUMENTS_VERB = "cluster_documents"
PIECE_SIZE = 512 * 1024
PIECES_MAX = DOCUMENT_SIZE_MAX // PIECE_SIZE

Fields = Mapping[str, object]


class AskedDocuments(NamedTuple):
    """A question as it came.

    Attributes:
        hold_ms: how long it may be kept.
        piece: which one of the document is wanted, from 0 on; a later one is answered at once.
    """

    request: DocumentRequest
    hold_ms: int
    piece: int


class ReplyPiece(NamedTuple):
    """An answer as it came; ``pieces`` is how many the document has, 0 without one.

    ``digest`` is that of the whole document: pieces of two are not put together.
    """

    reply: DocumentReply
    pieces: int
    content: bytes
    digest: str


def ask_fields(request: DocumentRequest, *, hold_ms: int, piece: int) -> dict[str, object]:
    """Arguments of the call."""
    return {
        "group": request.group,
        "chain": [encoded(one) for one in request.chain],
        "rank": request.rank,
        "at": [*request.at],
        **({"key": encoded(request.key)} if request.key else {}),
        "hold_ms": hold_ms,
        "piece": piece,
    }


def read_asked(fields: Fields) -> AskedDocuments:
    """The question in a call's arguments.

    Raises:
        ProtocolError: it has another shape.
    """
    try:
        request = DocumentRequest(
            text_of(fields, "group", size_max=NAME_LENGTH_MAX),
            read_chain(fields),
            integer_of(fields, "rank"),
            read_point(fields.get("at")),
            decoded(fields["key"], size_max=PUBLIC_SIZE) if "key" in fields else b"",
        )
        hold_ms, piece = integer_of(fields, "hold_ms"), integer_of(fields, "piece")
    except ConfigError as error:
        raise ProtocolError(error.message, **error.details) from None
    return AskedDocuments(request, min(hold_ms, HOLD_MS), piece)


def reply_fields(reply: DocumentReply, piece: int) -> dict[str, object]:
    """The result of the call, with one piece of the document."""
    document = reply.document or b""
    begin = piece * PIECE_SIZE
    content = document[begin : begin + PIECE_SIZE]
    return {
        "chain": [encoded(one) for one in reply.chain],
        "nodes": [*reply.home_nodes],
        "is_current": reply.is_current,
        "is_parted": reply.is_parted,
        "pieces": -(-len(document) // PIECE_SIZE),
        **(
            {"content": encoded(content), "digest": content_digest(document).hex()}
            if content
            else {}
        ),
    }


def read_reply(fields: Fields) -> ReplyPiece:
    """The answer in a call's result; its document is put together by who asks for all pieces.

    Raises:
        ConfigError: it has another shape.
    """
    pieces = integer_of(fields, "pieces")
    if pieces > PIECES_MAX:
        raise ConfigError("cluster document is too large", pieces=pieces, limit=PIECES_MAX)
    reply = DocumentReply(
        read_chain(fields),
        read_nodes(fields),
        None,
        fields.get("is_current") is True,
        fields.get("is_parted") is True,
    )
    if not pieces:
        return ReplyPiece(reply, 0, b"", "")
    content = decoded(fields.get("content"), size_max=PIECE_SIZE)
    return ReplyPiece(reply, pieces, content, text_of(fields, "digest", size_max=64))
