"""A large GPU's performance from two small ones and a miss-rate curve.

Source: GPU Scale-Model Simulation (HPCA'24), and its authors' published tool and numbers; specs,
"Scale model: what reproduces the paper".
"""
