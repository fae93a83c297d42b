"""What the ranks of a job do in a step, operation by operation, and how many bytes each operation moves."""
