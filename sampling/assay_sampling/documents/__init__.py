"""Documents that scripts rely on, as typed models: each field with its unit and meaning."""
