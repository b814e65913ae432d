"""Limits of memory and cores that control groups (versions 1 and 2) and Slurm set, the smallest; and of open files.

A process's group may be nested, as Slurm's, systemd's and a container's are: the limits of all groups around it hold.
"""

import math
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")
_MEMORY_FILES = ("memory.max", "memory.high", "memory.limit_in_bytes")  # the last is version 1's
_MEGABYTES = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20}


def allow_open_files() -> None:
    """Raises this process's limit of open files to the highest that it may have."""
    _, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have a lower one than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))


def memory_limit(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> float:
    """Returns the bytes that this process may use by its groups and by Slurm; infinity: no limit.

    root: folder that holds `proc` and `sys`.
    """
    texts = [_text(group / name) for group in _groups(root, "memory") for name in _MEMORY_FILES]
    of_groups = [int(text) for text in texts if text.isdecimal()]
    return min([*of_groups, *_slurm_megabytes(environment)], default=math.inf)


def core_limit(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> float:
    """Returns the number of cores that this process may keep busy by its groups and by Slurm; infinity: no limit.

    root: folder that holds `proc` and `sys`.
    """
    of_groups = [cores for group in _groups(root, "cpu") if (cores := _quota(group)) > 0]
    of_slurm = [_smallest(environment.get("SLURM_CPUS_PER_TASK", "")), _slurm_cpus(environment)]
    return min([*of_groups, *(cores for cores in of_slurm if cores)], default=math.inf)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's groups of a controller, each before those around it."""
    paths = {}
    for _, names, path in re.findall("^(\\d+):(.*?):(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE):
        paths |= dict.fromkeys(names.split(","), path)  # version 2 has one hierarchy, without a name
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        is_first = kind.startswith("cgroup ") and controller in kind.rpartition(" ")[2].split(",")
        path = paths.get(controller if is_first else "")
        if path and (is_first or kind.startswith("cgroup2 ")):
            mounted, point = (re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), x) for x in mount.split()[3:5])
            inside = os.path.relpath(path, mounted)  # a container may see a part of the hierarchy
            top = root / point.lstrip("/")
            folder = top if inside.startswith("..") else top / inside
            yield from (group for group in (folder, *folder.parents) if group.is_relative_to(top))


def _quota(group: Path) -> int:
    """Returns the cores that a group's quota of time keeps busy, rounded up; 0: it has none."""
    text = _text(group / "cpu.max") or f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
    quota, _, period = text.partition(" ")
    has_quota = quota.isdecimal() and period.isdecimal() and int(period)  # else `max`, or version 1's -1
    return max(1, -(-int(quota) // int(period))) if has_quota else 0


def _slurm_megabytes(environment: Mapping[str, str]) -> Iterator[int]:
    num_gpus = _smallest(environment.get("SLURM_GPUS_ON_NODE", ""))
    numbers = (("NODE", 1), ("CPU", _slurm_cpus(environment)), ("GPU", num_gpus))
    for name, number in numbers:
        size = re.fullmatch(r"(\d+)([KMGT]?)", environment.get(f"SLURM_MEM_PER_{name}", "").strip().upper())
        if size and int(size[1]) and number:  # 0 megabytes stand for all
            yield int(int(size[1]) * _MEGABYTES[size[2]] * number * 2**20)


def _slurm_cpus(environment: Mapping[str, str]) -> int:
    """Returns the processors that the job has on this host, or at least has on one of its hosts; 0: unknown."""
    names = ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK")
    return next(filter(None, (_smallest(environment.get(name, "")) for name in names)), 0)


def _smallest(text: str) -> int:
    """Returns the smallest of Slurm's numbers, such as `16(x2),8`; 0: they can't be read."""
    is_read = re.fullmatch(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*", text)
    return min(int(number) for number in re.findall(r"(?:^|,)(\d+)", text)) if is_read else 0


def _text(path: Path) -> str:
    """Returns the text of a file; of a missing one, none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
