"""What an LLM can be asked. A kind of query is a file here, and a line in the registry."""
