"""Objectives, one a file: a batch in; a loss sum, a count and statistics out."""
