"""Whole models, each thin enough to read beside its paper."""
