"""Views of a run for a person: the live view, reports and plots, films, and playing in the terminal."""
