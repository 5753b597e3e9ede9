"""The kinds of figures: a module each, from parts of a document to one Vega-Lite document."""
