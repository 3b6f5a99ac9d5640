"""Scrub and repair: damaged entries found and fetched from other members."""
