"""Records → curves with their errors: the limit of small steps, test averages, kernels, draws."""
