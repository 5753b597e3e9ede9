"""Figures: one Vega-Lite document each, from which page, SVG, PNG, PDF and interactive page are drawn."""
