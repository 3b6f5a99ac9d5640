"""The raft process: the consensus core and its peers, entries on their way, repair, shipping."""
