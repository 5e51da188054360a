"""What adversaries do: programs that use what one of them sees, and nothing else."""
