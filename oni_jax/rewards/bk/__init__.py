"""Potentials that an LLM gives: of windows, which are a state and the steps that led to it."""
