"""What a run tells of itself: rows of numbers, written to several places and shown while it runs.

A row maps names to numbers, words, histograms and answers (`rows`); `names` says what each name means. Every place gets
the same row under the same step, `env_steps`, and takes what it can hold.
"""
