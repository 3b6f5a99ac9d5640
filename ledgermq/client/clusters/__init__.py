"""Clients of all groups of a cluster, each group by an ordinary client of its own."""
