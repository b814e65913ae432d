"""What a person sees of a run: the live view, reports and plots, films, and playing in the terminal."""
