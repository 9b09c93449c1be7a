"""SMD: scheduling of workers and parameter servers by the sum of ratios method."""
