"""The verbs of assay-agent: join, run, policy and quarantine, also as a job of Slurm."""
