"""Recovery: where the log ends after a stop, clean or not; damage, and logs that arrive."""
