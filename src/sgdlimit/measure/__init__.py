"""What every theory and every run asks of a problem: averages over fresh samples, curvatures, changes in time."""
