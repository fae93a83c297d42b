"""The truth about a simulated span: jobs, pairs, steps, layouts, and the subjects of faults."""
