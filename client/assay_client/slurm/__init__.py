"""Agents as Slurm jobs: the job script, its checks, and its submission with sbatch."""
