"""PyTorch workloads: random weights, random inputs, fixed seeds, nothing downloaded.

    python torch_workloads.py NAME [--batch N] [--iterations N] [--seed N] [--kineto FILE] [--device cuda|cpu]

What a GPU executes depends on shapes, not on values. Autotuning is off and algorithms are deterministic where
PyTorch has them, so that each run launches the same kernels. Prints a line of JSON, as the CUDA workloads do;
launches are null, for nobody but a tracer counts them. With --kineto PyTorch's own profiler writes operators
and shapes (gzip).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.nn import functional

Step = Callable[[], torch.Tensor]


class Bottleneck(nn.Module):
    """Three convolutions and a way around them, as in ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce = convolution(inputs, width, 1)
        self.spread = convolution(width, width, 3, stride)
        self.expand = convolution(width, outputs, 1, activation=False)
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else convolution(inputs, outputs, 1, stride, activation=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.expand(self.spread(self.reduce(images))) + self.around(images))


def convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, *, activation: bool = True
) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.ReLU()] if activation else []))


def residual_network(blocks: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not block else 1))
            inputs = 256 << stage
    return nn.Sequential(*layers)


def resnet50(batch: int, device: str) -> Step:
    """Inference on images of 224 x 224."""
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    network = nn.Sequential(residual_network((3, 4, 6, 3)), *head).to(device).eval()
    images = torch.randn(batch, 3, 224, 224, device=device)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return network(images)

    return step


def transformer(batch: int, device: str) -> Step:
    """Training of a small encoder; lengths change from step to step, and with them grids and kernels."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    network = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    inputs = [torch.randn(batch, length, 512, device=device) for length in (64, 128, 256, 384)]
    steps = 0

    def step() -> torch.Tensor:
        nonlocal steps
        optimizer.zero_grad()
        loss = network(inputs[steps % len(inputs)]).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
        return loss.detach()

    return step


def lstm(batch: int, device: str) -> Step:
    """Training of a language model of four layers, in the manner of GNMT: many small kernels."""
    network = nn.LSTM(512, 512, 4, batch_first=True).to(device)
    head = nn.Linear(512, 8000).to(device)
    optimizer = torch.optim.SGD([*network.parameters(), *head.parameters()], lr=1e-3)
    inputs = torch.randn(batch, 40, 512, device=device)
    targets = torch.randint(0, 8000, (batch * 40,), device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        outputs, _ = network(inputs)
        loss = functional.cross_entropy(head(outputs).flatten(0, 1), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Volume(nn.Module):
    """A small 3-D U-Net."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 16, 32, 64)
        self.down = nn.ModuleList(self.block(a, b) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in ((32, 64), (16, 32)))

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv3d(inputs, outputs, 3, 1, 1), nn.InstanceNorm3d(outputs), nn.ReLU())

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        fine = self.down[0](volume)
        middle = self.down[1](functional.max_pool3d(fine, 2))
        coarse = self.down[2](functional.max_pool3d(middle, 2))
        return self.up[1](self.up[0](coarse) + middle) + fine


def conv3d(batch: int, device: str) -> Step:
    """Segmentation of volumes of 64 x 64 x 64."""
    network = Volume().to(device).eval()
    volumes = torch.randn(batch, 1, 64, 64, 64, device=device)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return network(volumes)

    return step


def ssd_train(batch: int, device: str) -> Step:
    """Training of a detector of boxes on feature maps of several scales, in the manner of SSD."""
    body = residual_network((2, 2, 2)).to(device)
    extra = nn.ModuleList([convolution(1024, 512, 3, 2), convolution(512, 256, 3, 2)]).to(device)
    boxes = nn.ModuleList(nn.Conv2d(width, 6 * 85, 3, padding=1) for width in (1024, 512, 256)).to(device)
    parameters = [p for part in (body, extra, boxes) for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    images = torch.randn(batch, 3, 300, 300, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        maps = [body(images)]
        for layer in extra:
            maps.append(layer(maps[-1]))
        loss = sum(
            (box(m).square().mean() for box, m in zip(boxes, maps, strict=True)),
            torch.zeros(1, device=device),
        )
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


WORKLOADS: dict[str, Callable[[int, str], Step]] = {
    "resnet50": resnet50,
    "transformer": transformer,
    "lstm": lstm,
    "conv3d": conv3d,
    "ssd_train": ssd_train,
}


@contextlib.contextmanager
def traced(path: Path | None, cuda: bool) -> Iterator[None]:
    """Under PyTorch's profiler, its trace into ``path``; nothing without one."""
    if path is None:
        yield
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if cuda else []
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        yield
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        path.write_bytes(gzip.compress(plain.read_bytes()))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kineto", type=Path, default=os.environ.get("ASSAY_KINETO_FILE"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    torch.manual_seed(options.seed)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    wait = torch.cuda.synchronize if cuda else lambda: None
    # From the first launch on: other tracers see these, too.
    with traced(options.kineto, cuda):
        step = WORKLOADS[options.name](options.batch, options.device)
        wait()
        result = torch.zeros(1)
        began = time.perf_counter()
        for number in range(options.iterations):
            with torch.cuda.nvtx.range(f"step {number}") if cuda else contextlib.nullcontext():
                result = step()
        wait()
        seconds = time.perf_counter() - began
    line = {
        "assay_workload": options.name,
        "size": options.batch,
        "iterations": options.iterations,
        "seed": options.seed,
        "launches": None,
        "sms": torch.cuda.get_device_properties(0).multi_processor_count if cuda else None,
        "issue_seconds": round(seconds, 6),
        "gpu_seconds": None,
        "checksum": float(result.double().sum()),
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
