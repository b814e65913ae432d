"""Settings of the site that `make docs` builds from the Markdown of this folder."""

project = "oni_jax"
author = copyright = "The oni_jax developers"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # headings are linked to by GitHub's names for them
html_theme = "furo"
html_title = "oni_jax"
exclude_patterns = ["_build", "requirements.txt"]
