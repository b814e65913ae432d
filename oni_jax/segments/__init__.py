"""Recorded episodes, and the segments of them that an LLM is asked about."""
