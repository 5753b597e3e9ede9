"""Variables that no policy file allows: their values are loaded or run, or change what a name means.

A policy names variables one by one, because a pattern allows more than its author expects: ``OMP_*`` also
matches ``OMP_TOOL_LIBRARIES``, which OpenMP loads as a library. Each group below says where its names are
documented. Names that look like one of these but load nothing are in ``_HARMLESS``.
"""

from __future__ import annotations

import re

# Each: a regular expression of whole names, and its source.
_GROUPS = (
    # ld.so(8), and glibc's list of what it takes from setuid programs (sysdeps/generic/unsecvars.h)
    r"LD_\w*|GLIBC_TUNABLES|GCONV_PATH|GETCONF_DIR|LOCPATH|NLSPATH|MALLOC_\w*|HOSTALIASES|LOCALDOMAIN|NIS_PATH|"
    r"RES_OPTIONS|RESOLV_HOST_CONF|TZDIR",
    # bash(1), zsh(1), dash(1), and what sudo takes from every environment (sudoers(5), env_delete)
    r"PATH|ENV|BASH_\w*|SHELLOPTS|BASHOPTS|IFS|CDPATH|FPATH|PS4|PROMPT_COMMAND|GLOBIGNORE|NULLCMD|READNULLCMD|"
    r"ZDOTDIR|SHELL|EDITOR|VISUAL|PAGER|BROWSER|LESSOPEN|LESSCLOSE|GIT_\w*|SSH_\w*|TERMINFO\w*|TERMCAP",
    # Injection into CUDA and NVTX, Nsight's own variables, the client of MPS, caches of compiled code
    # (NVIDIA's documentation of CUPTI, NVTX, Nsight Compute and Systems, MPS and CUDA); our tracer
    r"(CUDA|NVTX)_INJECTION\w*|NV_\w*|NSYS_\w*|NSIGHT_\w*|QUADD_\w*|COMPUTE_PROFILE\w*|NVCC_\w*|"
    r"CUDA_(HOME|PATH|ROOT|CACHE_PATH|MPS_\w*)|ASSAY_TRACER_\w*",
    r"CUDBG_\w*",
    # Tools interfaces: OpenMP (5.2, 6.3) and LLVM's offloading plugins, OpenACC (3.3, 5.3), Kokkos Tools, and
    # Intel's ITT API, which PyTorch and oneDNN have in them (ittnotify_static.c)
    r"OMP_TOOL\w*|OMP_DEBUG|LIBOMPTARGET_\w*|ACC_PROFLIB|KOKKOS_(TOOLS|PROFILE)_\w*|INTEL_LIBITTNOTIFY(32|64)|"
    r"INTEL_JIT_PROFILER(32|64)",
    # Python: 'python3 --help-env', sitecustomize; PyTorch and Triton compile code and load it from caches
    r"PYTHON\w*|VIRTUAL_ENV|CONDA_\w*|TORCH_EXTENSIONS_DIR|TORCHINDUCTOR_\w*|TRITON_\w*|TORCH_LOGS_OUT|"
    r"NUMBA_\w*|CUPY_\w*|TF_LOAD_LIBRARY|TF_PLUGGABLE_DEVICE_\w*|XLA_FLAGS|PJRT_\w*|TPU_LIBRARY_PATH|"
    r"HF_MODULES_CACHE|MPLBACKEND|PYTEST_\w*|COVERAGE_PROCESS_\w*",
    # Compilers that programs call at run time (gcc(1), clang(1), make(1))
    r"CC|CXX|CPP|LD|AR|AS|(C|CPP|CXX|LD)FLAGS|GCC_\w*|COMPILER_PATH|LIBRARY_PATH|(C|CPLUS|OBJC)_INCLUDE_PATH|CPATH|"
    r"MAKEFLAGS|MAKEFILES|PKG_CONFIG_\w*|CCACHE_\w*|NINJA_\w*|CMAKE_\w*",
    # Other languages: perlrun(1), ruby(1), node(1), java, dotnet, mono, php, lua, julia, R, tcl, guile
    r"PERL5\w*|PERLLIB|PERLIO\w*|RUBY\w*|GEM_\w*|BUNDLE_\w*|NODE_\w*|NPM_\w*|\w*JAVA_(TOOL_)?OPTIONS|"
    r"JDK_JAVA_OPTIONS|CLASSPATH|DOTNET_\w*|CORECLR_\w*|COMPlus_\w*|MONO_\w*|PHPRC|PHP_INI_SCAN_DIR|LUA_\w*|"
    r"JULIA_\w*|R_(HOME|LIBS\w*|PROFILE\w*|ENVIRON\w*)|TCLLIBPATH|GUILE_\w*|MATLABPATH|OCTAVE_\w*",
    # Plug-ins by name or folder: Open MPI's MCA, UCX, libfabric, NCCL; MPICH's launcher
    r"(OMPI|PMIX|PRTE|OPAL|ORTE)_MCA_\w*|OPAL_PREFIX|HYDRA_\w*|UCX_MODULE\w*|UCX_CONFIG_DIR|FI_PROVIDER_PATH|"
    r"(NCCL|NVSHMEM)_\w*PLUGIN\w*|NCCL_(NET|CONF_FILE)|I_MPI_(ROOT|\w*LIBRARY\w*)|FLEXIBLAS\w*",
    # Libraries that load modules: OpenSSL, OpenCL, Vulkan, GL, HDF5, GDAL, GTK, Qt, GStreamer, GIO, Kerberos
    r"OPENSSL_\w*|SSLKEYLOGFILE|OCL_ICD_\w*|OPENCL_VENDOR_PATH|VK_\w*|(LIBGL|GBM|EGL|__EGL|__GLX?)_\w*|"
    r"HDF5_(PLUGIN|VOL)_\w*|GDAL_\w*|GTK_(MODULES|PATH|EXE_PREFIX)|QT_\w*|GST_\w*|GIO_\w*|KRB5\w*|LIBVA_\w*|"
    r"ROCP_TOOL_LIB|HSA_TOOLS_LIB|XDG_\w*",
    # Sanitizers and coverage write files where they are told (clang's documentation)
    r"\w*(A|UB|T|M|L)SAN_OPTIONS|GCOV_\w*|LLVM_PROFILE_FILE",
)  # fmt: skip
_LOADING = re.compile("|".join(_GROUPS), re.ASCII)
# Switches of Python's and glibc's that name no file and load nothing ('python3 --help-env', mallopt(3)).
_HARMLESS = frozenset(
    (
        "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER",
        "PYTHONOPTIMIZE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONUTF8", "PYTHONIOENCODING",
        "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
    )
)  # fmt: skip


def loads_code(name: str) -> bool:
    """Whether a variable of this name is for loaders and tools, so that no policy may let it in."""
    return name not in _HARMLESS and _LOADING.fullmatch(name) is not None
