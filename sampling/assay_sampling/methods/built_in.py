"""The built-in selection methods: name, module and class. A method that is added needs its line here."""

from __future__ import annotations

BUILT_IN = {
    "pks": ("assay_sampling.methods.pks.sampler", "PksSampler"),
    "random": ("assay_sampling.methods.baselines.random_sampling", "RandomSampler"),
    "systematic": ("assay_sampling.methods.baselines.systematic", "SystematicSampler"),
    "stratified": ("assay_sampling.methods.baselines.stratified", "StratifiedSampler"),
    "proportional": ("assay_sampling.methods.baselines.proportional", "ProportionalSampler"),
    "balanced": ("assay_sampling.methods.balanced.sampler", "BalancedSampler"),
    "first_instructions": ("assay_sampling.methods.baselines.first_instructions", "FirstInstructionsSampler"),
    "single_iteration": ("assay_sampling.methods.baselines.single_iteration", "SingleIterationSampler"),
    "tbpoint": ("assay_sampling.methods.tbpoint.sampler", "TBPointSampler"),
    "photon": ("assay_sampling.methods.photon.sampler", "PhotonSampler"),
    "sieve": ("assay_sampling.methods.sieve.sampler", "SieveSampler"),
    "stem": ("assay_sampling.methods.stem.sampler", "StemSampler"),
}
