"""Names that GPUs give themselves, and guesses which of them a user meant.

These are names that NVIDIA's driver reports (``nvidia-smi --query-gpu=name``). The list is incomplete and new
GPUs come, so another name is doubtful but never wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from assay_sampling.errors import ParameterError
from assay_sampling.running.identity import device_key

GPU_NAMES: tuple[str, ...] = (
    "P100-PCIE-12GB", "P100-PCIE-16GB", "P100-SXM2-16GB", "P4", "P40", "V100-SXM2-16GB",
    "V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-16GB", "V100-PCIE-32GB", "V100S-PCIE-32GB",
    "V100-FHHL-16GB", "V100-DGXS-16GB", "V100-DGXS-32GB", "T4", "T4G", "A2", "A10", "A10G", "A16", "A30",
    "A40", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100 80GB PCIe", "L4", "L20", "L40",
    "L40S", "H100 PCIe", "H100 80GB HBM3", "H100 NVL", "H20", "H200", "H200 NVL", "H800", "GH200 480GB",
    "GH200 144G HBM3e", "B200", "GB200", "GB10", "GTX 1050", "GTX 1050 Ti", "GTX 1060 3GB",
    "GTX 1060 6GB", "GTX 1070", "GTX 1070 Ti", "GTX 1080", "GTX 1080 Ti", "GTX 1650", "GTX 1650 SUPER",
    "GTX 1660", "GTX 1660 SUPER", "GTX 1660 Ti", "RTX 2060", "RTX 2060 SUPER", "RTX 2070",
    "RTX 2070 SUPER", "RTX 2080", "RTX 2080 SUPER", "RTX 2080 Ti", "RTX 3050", "RTX 3060", "RTX 3060 Ti",
    "RTX 3070", "RTX 3070 Ti", "RTX 3080", "RTX 3080 Ti", "RTX 3090", "RTX 3090 Ti", "RTX 4060",
    "RTX 4060 Ti", "RTX 4070", "RTX 4070 SUPER", "RTX 4070 Ti", "RTX 4070 Ti SUPER", "RTX 4080",
    "RTX 4080 SUPER", "RTX 4090", "RTX 4090 D", "RTX 5060", "RTX 5060 Ti", "RTX 5070", "RTX 5070 Ti",
    "RTX 5080", "RTX 5090",
    *(f"RTX {number} Laptop GPU" for number in (
        "2060", "2070", "2080", "3050", "3050 Ti", "3060", "3070", "3070 Ti", "3080", "3080 Ti", "4050",
        "4060", "4070", "4080", "4090", "5060", "5070", "5070 Ti", "5080", "5090"
    )),
    "TITAN X (Pascal)", "TITAN Xp", "TITAN V", "TITAN RTX", "Quadro P4000", "Quadro P5000",
    "Quadro P6000", "Quadro GP100", "Quadro GV100", "Quadro RTX 4000", "Quadro RTX 5000",
    "Quadro RTX 6000", "Quadro RTX 8000", "RTX A2000", "RTX A2000 12GB", "RTX A4000", "RTX A4500",
    "RTX A5000", "RTX A5500", "RTX A6000", "RTX 2000 Ada Generation", "RTX 4000 Ada Generation",
    "RTX 4500 Ada Generation", "RTX 5000 Ada Generation", "RTX 6000 Ada Generation",
    "RTX PRO 6000 Blackwell Workstation Edition", "Orin (nvgpu)", "Xavier",
)  # fmt: skip

# Compute capabilities by family, as NVIDIA's table of CUDA GPUs has them; matched on the name without vendor.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("6.0", r"p100|quadro gp100"),
    ("6.1", r"p4$|p40|gtx 10\d0|titan xp?|quadro p\d+"),
    ("7.0", r"v100s?|titan v|quadro gv100"),
    ("7.2", r"xavier"),
    ("7.5", r"t4g?$|gtx 16\d0|rtx 20[678]0|titan rtx|quadro rtx"),
    ("8.0", r"a100|a800|a30$"),
    ("8.6", r"a(2|10g?|16|40)$|rtx 30[5-9]0|rtx a\d+"),
    ("8.7", r"orin"),
    ("8.9", r"l(4|20|40s?)$|rtx 40[5-9]0|rtx \d000 ada|rtx 4500 ada"),
    ("9.0", r"h100|h20$|h200|h800|gh200"),
    ("10.0", r"g?b200"),
    ("12.0", r"rtx 50[5-9]0|rtx pro 6000 blackwell"),
    ("12.1", r"gb10$"),
)
COMPUTE_CAPABILITIES = tuple(sorted({capability for capability, _ in _FAMILIES} | {"10.3"}, key=float))
_CAPABILITY = re.compile(r"(?:sm_?|compute_)?(\d{1,2})[._]?(\d)")

_MOST = 4
_CLOSE = 0.75


def compute_capability_of(gpu: str) -> str:
    """The compute capability, such as "7.0", of a GPU by its name or family ("V100"), or as given ("sm_70").

    Raises ParameterError for an unknown name, with the names that the user may have meant.
    """
    name = device_key(gpu)
    match = _CAPABILITY.fullmatch(name)
    if match and f"{match[1]}.{match[2]}" in COMPUTE_CAPABILITIES:
        return f"{match[1]}.{match[2]}"
    for capability, family in _FAMILIES:
        if re.match(rf"(?:{family})(?!\d)", name):
            return capability
    split = (re.split(r"[- ](?=\d+ ?G|SXM|PCI|FHHL|DGXS|NVL)", each)[0] for each in GPU_NAMES)
    families = list(dict.fromkeys(split))
    holding = [family for family in families if len(name) > 2 and name in family.casefold()][:_MOST]
    meant = holding or nearest(name, [*families, *GPU_NAMES], str.casefold) or ()
    *others, last = meant or ("",)
    hint = f"did you mean {', '.join(others)}{' or ' if others else ''}{last}? Or " if meant else ""
    raise ParameterError(
        "--gpu",
        f"no known GPU is called {gpu!r}",
        f"{hint}give its compute capability, which nvidia-smi --query-gpu=compute_cap --format=csv prints: "
        f"one of {', '.join(COMPUTE_CAPABILITIES)}",
    )


def nearest(kind: str, names: Iterable[str], key: Callable[[str], str]) -> Sequence[str] | None:
    """The names that ``kind`` may mean, nearest first, at most four; None if it is one of them.

    Args:
        kind: what the user wrote.
        names: the names to choose from.
        key: the part of a name that counts; names with equal keys are the same.
    """
    by_key = {key(name): name for name in names}
    kind_key = key(kind)
    if kind_key in by_key:
        return None
    # People leave out blanks and dashes, and call a V100-SXM2-16GB "V100".
    squeezed = _squeezed(kind_key)
    if not squeezed:
        return []
    names_squeezed = {_squeezed(k): name for k, name in by_key.items()}
    if squeezed in names_squeezed:
        return [names_squeezed[squeezed]]
    boundary = re.compile(rf"{re.escape(kind_key)}[ -]|{squeezed}[^\d -]")
    longer = [name for k, name in by_key.items() if boundary.match(k) or boundary.match(_squeezed(k))]
    close = difflib.get_close_matches(squeezed, names_squeezed, n=_MOST, cutoff=_CLOSE)
    return (longer or [names_squeezed[k] for k in close])[:_MOST]


def unknown(kind: str) -> Sequence[str] | None:
    """None if ``kind`` is the name of a GPU or of a family, such as "V100"; else the names it may mean."""
    if any(stands_for(kind, name) for name in GPU_NAMES):
        return None
    return nearest(kind, GPU_NAMES, device_key)


def stands_for(kind: str, name: str) -> bool:
    """Whether ``kind`` is the GPU ``name`` or its family: "V100" is, "RTX 3070" for "RTX 3070 Ti" is not."""
    kind_key, key = device_key(kind), device_key(name)
    if kind_key == key:
        return True
    is_name = kind_key in {device_key(each) for each in GPU_NAMES}
    has_number = any(c.isdigit() for c in kind_key)
    return has_number and not is_name and re.match(rf"{re.escape(kind_key)}[ -]", key) is not None


def names_another(kind: str, names: Sequence[str]) -> bool:
    """Whether ``kind`` names a GPU or family that all of ``names`` differ from.

    False for a text that does not name a GPU, such as "box 3", and without ``names``.
    """
    return bool(names) and unknown(kind) is None and not any(stands_for(kind, name) for name in names)


def either(names: Sequence[str]) -> str:
    """``'A'``, ``'A' or 'B'``, ``'A', 'B' or 'C'``."""
    *first, last = [repr(name) for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def _squeezed(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
