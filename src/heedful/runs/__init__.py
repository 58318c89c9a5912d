"""Whole jobs, from raw files to a model folder: what the command line calls."""
