"""The check of a whole store directory, part by part."""
