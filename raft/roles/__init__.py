"""Follower, candidate and leader: what each does with messages and ticks."""
