"""A stand-in for the parts of Ray that a node in a Slurm job uses, which starts nothing of Ray.

The cluster is a folder `gcs` in the job's folder, with a file for each member. `ray start --head`
answers at the port of the GCS, and at that of the dashboard as the job API does.
"""
