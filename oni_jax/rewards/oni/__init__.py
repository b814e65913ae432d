"""The rewards of ONI and Motif: labels and preferences of an LLM, and the models that learn from them."""
