"""Mirrors of other sites: what the observer gives them of the log, to whom, and how fast."""
