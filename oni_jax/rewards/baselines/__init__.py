"""Rewards without an LLM: curiosity, and counts of captions."""
