"""Where the figures were measured."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "torch", "keras", "tensorflow", "safetensors", "h5py")


def describe() -> dict[str, Any]:
    """The machine, and the versions of what runs on it."""
    return {
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": f"{platform.system()} {platform.release()}",
            "disk": disk(Path.cwd()),
        },
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
    }


def processor() -> str:
    """Name of the processor, as Linux reports it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def disk(folder: Path) -> str:
    """File system and device of a folder."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    over = [mount for mount in mounts if folder.is_relative_to(mount[1])]
    device, _, kind, *_ = max(over, key=lambda mount: len(mount[1]))
    return f"{kind} on {Path(device).name}"
