"""The reward of ELLM: reaching goals that an LLM suggests for a state."""
