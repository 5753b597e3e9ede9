"""Agents as Slurm jobs: the job script, what is checked before it, and its submission with sbatch."""
