"""Work → records: the one room that knows threads, devices, memory, checkpoints, progress and executors."""
