"""Model of data-parallel scaling, its published facts, fits and forecasts."""
