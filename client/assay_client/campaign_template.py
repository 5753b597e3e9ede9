"""The campaign file that ``assay init`` writes: valid as it stands, and commented for a newcomer."""

from __future__ import annotations

SCHEMA_FILE = "campaign.schema.json"

CAMPAIGN_TEMPLATE = f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
#
# A campaign: which workloads, on which kinds of GPU, analysed how. Paths are relative to this file.
#   assay plan campaign.yaml      check it, and see what it would run
#   assay run campaign.yaml       run it in one process (recordings), or, for commands on GPUs:
#   assay lab submit campaign.yaml    hand it to a server whose agents have the GPUs

campaign: my-campaign       # letters, digits, '.', '_', '-'; the first submission is my-campaign-1
synthetic: false            # true for data that no silicon produced, such as virtual GPUs
seed: 0                     # of every random choice

workloads:
  # Recordings that you have: light (every launch and its time), detailed (counters of the first launches),
  # or both, one entry for each kind of GPU. Formats are found by content.
  - name: training
    recordings:
      - device: V100
        light: v100_training.sqlite       # Nsight Systems SQLite or Parquet, Kineto JSON
        detailed: v100_window.csv         # Nsight Compute raw page CSV: ncu --import R --csv --page raw
      # - device: A100
      #   light: a100_training.sqlite

  # A command to measure on each of `gpus` below. Its program is found from the folder of this file if it
  # has a slash, else in the PATH of the agent.
  # - name: hotspot
  #   command: [./hotspot, "1024", "2", "100"]
  #   environment: {{OMP_NUM_THREADS: "1"}}
  #   timeout_s: 3600

# For commands: where, how much, under what. `assay doctor --for agent` says whether a box is ready.
# gpus: [V100-SXM2-16GB, A100-SXM4-80GB]   # as `assay-agent inventory` names them
# detailed: {{first: 1000, features: table2}}   # first: auto continues while it pays; if a box
#   refuses counters (ERR_NVGPUCTRPERM), write `detailed: none` instead: `assay docs light-only`
# conditions:
#   - {{cache: all}}            # caches flushed between launches
#   - {{clock: base}}           # the clock locked, besides the free one
#   - {{sm_percent: 50}}        # half of the SMs
# repeats: 1

analysis:
  # reference: V100           # kind of GPU that selections are made on; default: the first of each workload
  methods:                    # `assay select --help` lists them
    - pks: {{features: table2}}
    - random: {{launches: 100}}
    - systematic
"""
