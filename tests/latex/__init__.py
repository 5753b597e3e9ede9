"""Reports as LaTeX, compiled by Debian's TeX Live."""
