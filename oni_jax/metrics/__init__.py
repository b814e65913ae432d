"""Metrics of a run: rows of numbers, written to several sinks and shown while it runs.

A row maps names to numbers, words, histograms and answers (`rows`); `names` documents each name. Every sink gets the
same row under the same step, `env_steps`, and writes what it supports.
"""
