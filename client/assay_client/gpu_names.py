"""Names that GPUs give themselves, and which of them somebody may have meant.

The names are those that NVIDIA's driver reports (``nvidia-smi --query-gpu=name``), as far as they are known
here. New GPUs come, so a name that is not among them is doubtful and never wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from assay_sampling.identity import device_key

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

_MOST = 4
_CLOSE = 0.75


def nearest(kind: str, names: Iterable[str], key: Callable[[str], str]) -> Sequence[str] | None:
    """The names that ``kind`` may stand for, nearest first, at most four; None where it is one of them.

    Args:
        kind: what somebody wrote.
        names: the names that there are.
        key: what of a name counts; two names with one key are the same.
    """
    by_key = {key(name): name for name in names}
    wanted = key(kind)
    if wanted in by_key:
        return None
    # Blanks and dashes are what people leave out; "V100" is what they call a V100-SXM2-16GB.
    squeezed = _squeezed(wanted)
    if not squeezed:
        return []
    names_squeezed = {_squeezed(k): name for k, name in by_key.items()}
    if squeezed in names_squeezed:
        return [names_squeezed[squeezed]]
    boundary = re.compile(rf"{re.escape(wanted)}[ -]|{squeezed}[^\d -]")
    longer = [name for k, name in by_key.items() if boundary.match(k) or boundary.match(_squeezed(k))]
    close = difflib.get_close_matches(squeezed, names_squeezed, n=_MOST, cutoff=_CLOSE)
    return (longer or [names_squeezed[k] for k in close])[:_MOST]


def unknown(kind: str) -> Sequence[str] | None:
    """None where ``kind`` is the name of a GPU or of a family, such as "V100"; else what it may stand for."""
    if any(stands_for(kind, name) for name in GPU_NAMES):
        return None
    return nearest(kind, GPU_NAMES, device_key)


def stands_for(kind: str, name: str) -> bool:
    """Whether ``kind`` is the GPU ``name`` or its family: "V100" is, "RTX 3070" is no "RTX 3070 Ti"."""
    wanted, key = device_key(kind), device_key(name)
    if wanted == key:
        return True
    is_name = wanted in {device_key(known) for known in GPU_NAMES}
    has_number = any(c.isdigit() for c in wanted)
    return has_number and not is_name and re.match(rf"{re.escape(wanted)}[ -]", key) is not None


def either(names: Sequence[str]) -> str:
    """``'A'``, ``'A' or 'B'``, ``'A', 'B' or 'C'``."""
    *first, last = [repr(name) for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def _squeezed(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
