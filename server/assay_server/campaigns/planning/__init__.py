"""Plans a campaign's runs and forecasts their cost."""
