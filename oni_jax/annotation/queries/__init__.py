"""Kinds of query that an LLM can be asked. Each is a file here, and a line in the registry."""
