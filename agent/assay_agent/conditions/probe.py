"""Prints how many SMs a CUDA process has here. Run as a script, with the standard library only.

    python -I -S probe.py

It makes a context through the driver's library, as the workload will, and asks for attribute 16,
CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: under MPS "the executed limit is reflected" there. It prints one
line of JSON: ``{"sm_count": 66, "uuid": "GPU-...", "cuda_version": 12040, "devices": 1}``, or
``{"error": "cuInit: 100"}``. Source: docs/conditions.md, "SM shares".
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid

_MULTIPROCESSOR_COUNT = 16
_NAMES = {
    2: "out of memory", 3: "not initialized", 34: "stub library", 46: "device unavailable", 100: "no device",
    101: "invalid device", 304: "operating system", 805: "MPS connection failed", 806: "MPS RPC failure",
    807: "MPS server not ready", 808: "MPS: too many clients", 809: "MPS: too many connections",
    810: "MPS client terminated", 999: "unknown",
}  # fmt: skip


class _DriverError(Exception):
    pass


def main() -> int:
    """Print the answer; 0 if it is a number of SMs."""
    try:
        answer = _look(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        answer = {"error": f"the driver's library cannot be loaded ({error})"}
    except _DriverError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


def _look(driver: ctypes.CDLL) -> dict[str, object]:
    def call(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status:
            raise _DriverError(f"{name}: {status} ({_NAMES.get(status, 'see cuda.h')})")

    version, devices, device, count = (ctypes.c_int() for _ in range(4))
    context, identity = ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(devices))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetUuid", identity, device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSOR_COUNT, device)
    return {
        "sm_count": count.value,
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(identity))}",
        "cuda_version": version.value,
        "devices": devices.value,
    }


if __name__ == "__main__":
    sys.exit(main())
