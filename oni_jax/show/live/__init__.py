"""The view of a training in the terminal."""
