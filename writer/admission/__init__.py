"""Admission: which frames and records of producers may be stored."""
