"""Named integer types: positions, indexes, queue offsets, terms.

Vocabulary (see docs/architecture.md):

* position: bytes from the start of the whole log, over all of its files;
* index: number of a Raft entry, 0 for the first one;
* queue offset: n-th message of one queue, 0 for the first one.
"""

from __future__ import annotations

from typing import NewType

Position = NewType("Position", int)
Index = NewType("Index", int)
Term = NewType("Term", int)
QueueId = NewType("QueueId", int)
QueueOffset = NewType("QueueOffset", int)
NodeId = NewType("NodeId", str)

NO_INDEX = Index(-1)
"""Index of the last entry of an empty log."""
