"""Figures: one Vega-Lite document each, drawn as SVG, PNG, PDF and interactive page."""
