"""A large GPU's performance from two small ones and a miss-rate curve.

Source: GPU Scale-Model Simulation (HPCA'24), its authors' published tool and numbers;
docs/methods/scale-model.md.
"""
