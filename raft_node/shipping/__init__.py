"""Shipping: entries and whole files of the log on their way to followers."""
