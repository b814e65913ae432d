"""Recorded answers: what a language model said of captions, in files, so that nobody need be asked again."""
