"""The parts of the static page that ``visualizers/html.py`` puts together."""
