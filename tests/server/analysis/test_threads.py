"""Numeric libraries use one thread in an analysis, whenever they are loaded."""

from __future__ import annotations

import subprocess
import sys

LOADED_INSIDE = """
import sys
from threadpoolctl import threadpool_info
from assay_server.analysis.pipeline import single_threaded
assert "sklearn" not in sys.modules
with single_threaded():
    import sklearn.cluster, sklearn.neural_network
    inside = threadpool_info()
print(sorted({(each["user_api"], each["num_threads"]) for each in inside}))
"""


def test_libraries_that_are_loaded_inside_have_one_thread_too() -> None:
    variables = {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", LOADED_INSIDE], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[('blas', 1), ('openmp', 1)]"


def test_the_analysis_does_not_load_scikit_learn_before_a_method_needs_it() -> None:
    loads = "import sys, assay_server.analysis.pipeline; print({'sklearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
