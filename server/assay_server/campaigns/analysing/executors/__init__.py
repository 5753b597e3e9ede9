"""Where analyses are computed: processes of this machine, or workers of a Dask cluster."""
