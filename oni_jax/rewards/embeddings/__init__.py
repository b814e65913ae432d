"""Embeddings of texts, by which goals are compared."""
