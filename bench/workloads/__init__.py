"""What is measured: one workload per file, with its sizes and the columns of its table."""
