"""The code of a cluster's nodes within a Slurm job. It travels as a zip in the batch script."""
