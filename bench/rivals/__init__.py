"""Other systems, started and loaded for comparison in the same run."""
