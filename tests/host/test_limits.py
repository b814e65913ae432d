"""Limits of control groups, nested ones too, and of Slurm."""

import math

import pytest

from oni_jax.host.limits import core_limit, memory_limit
from oni_jax.host.runtime import memory_bytes, num_cores

V2 = "24 20 0:22 {root} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "24 20 0:22 {root} {point} rw,nosuid - cgroup cgroup rw,{controllers}"
GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """Makes a folder with /proc and /sys, by the text of the process's groups, its mounts, and files of groups."""

    def make(groups: str, mounts: list[str], files: dict[str, object]):
        files = {"proc/self/cgroup": groups, "proc/self/mountinfo": "\n".join(mounts) + "\n", **files}
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")
        return tmp_path

    return make


TOP = "sys/fs/cgroup"


def test_smallest_limit_among_nested_groups_counts(machine):
    root = machine(
        "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
        [V2.format(root="/", point="/sys/fs/cgroup")],
        {
            f"{TOP}/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max": "max",
            f"{TOP}/system.slice/slurmstepd.scope/job_7/step_0/memory.max": 8 * GIB,
            f"{TOP}/system.slice/slurmstepd.scope/job_7/memory.max": 4 * GIB,
            f"{TOP}/system.slice/slurmstepd.scope/job_7/cpu.max": "150000 100000",
            f"{TOP}/system.slice/cpu.max": "max 100000",
            f"{TOP}/system.slice/other/memory.max": 1,
        },
    )
    assert memory_limit(root, {}) == 4 * GIB and core_limit(root, {}) == 2
    (root / TOP / "system.slice/memory.high").write_text(f"{3 * GIB}\n")
    assert memory_limit(root, {}) == 3 * GIB


@pytest.mark.parametrize("prefix", ["", "/docker/4e1f"])
def test_groups_of_version_1_count(machine, prefix):
    """In a container, whose part of the hierarchy may be mounted at the top, too."""
    memory, cpu = (
        V1.format(root=prefix or "/", point=f"/sys/fs/cgroup/{name}", controllers=name) for name in ("memory", "cpu")
    )
    root = machine(
        f"9:name=systemd:/\n4:memory:{prefix}/job\n3:cpuacct,cpu:{prefix}/job/step\n0::/",
        [memory, cpu.replace("/cpu ", "/cpu\\040time "), V2.format(root="/", point="/sys/fs/cgroup/unified")],
        {
            f"{TOP}/memory/job/memory.limit_in_bytes": 9223372036854771712,
            f"{TOP}/memory/memory.limit_in_bytes": 2 * GIB,
            f"{TOP}/cpu time/job/step/cpu.cfs_quota_us": -1,
            f"{TOP}/cpu time/job/step/cpu.cfs_period_us": 100000,
            f"{TOP}/cpu time/job/cpu.cfs_quota_us": 320000,
            f"{TOP}/cpu time/job/cpu.cfs_period_us": 100000,
        },
    )
    assert memory_limit(root, {}) == 2 * GIB and core_limit(root, {}) == 4


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", math.inf), ("150000 100000", 2), ("9900000 100000", 99), ("5000 100000", 1)]
)
def test_quota_is_rounded_up(machine, quota, cores):
    root = machine("0::/", [V2.format(root="/", point="/sys/fs/cgroup")], {f"{TOP}/cpu.max": quota})
    assert core_limit(root, {}) == cores


@pytest.mark.parametrize("path", ["/../../elsewhere", "/other"])
def test_group_outside_of_what_is_mounted_is_left_out(machine, path):
    mount = V2.format(root="/docker/4e1f", point="/sys/fs/cgroup")
    root = machine(f"0::{path}", [mount], {f"{TOP}/memory.max": GIB, f"{TOP}/cpu.max": "5000 100000"})
    assert memory_limit(root, {}) == GIB and core_limit(root, {}) == 1


def test_lines_that_name_no_group_are_left_out(machine):
    root = machine("hidden\n0::/a b:c", ["hidden", V2.format(root="/", point="/sys/fs/cgroup")], {})
    (root / TOP / "a b:c").mkdir(parents=True)
    (root / TOP / "a b:c/memory.max").write_text(f"{GIB}\n")
    assert memory_limit(root, {}) == GIB


def test_machine_without_groups_has_no_limit(tmp_path):
    assert memory_limit(tmp_path, {}) == core_limit(tmp_path, {}) == math.inf


@pytest.mark.parametrize(
    ("variables", "gib", "cores"),
    [
        ({"SLURM_MEM_PER_NODE": "2048"}, 2, math.inf),
        ({"SLURM_MEM_PER_NODE": "0"}, math.inf, math.inf),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "4"}, 4, 4),
        ({"SLURM_MEM_PER_CPU": "1G", "SLURM_JOB_CPUS_PER_NODE": "16(x2),8"}, 8, 8),
        ({"SLURM_MEM_PER_CPU": "1024"}, math.inf, math.inf),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_PER_TASK": "4"}, 4, 4),
        ({"SLURM_MEM_PER_GPU": "3g", "SLURM_GPUS_ON_NODE": "2"}, 6, math.inf),
        ({"SLURM_JOB_CPUS_PER_NODE": "1(x2)"}, math.inf, 1),
        ({"SLURM_CPUS_ON_NODE": "16", "SLURM_CPUS_PER_TASK": "3"}, math.inf, 3),
        ({"SLURM_CPUS_ON_NODE": "", "SLURM_CPUS_PER_TASK": "many", "SLURM_MEM_PER_NODE": "-1"}, math.inf, math.inf),
    ],
)
def test_limits_of_slurm_count(tmp_path, monkeypatch, variables, gib, cores):
    assert memory_limit(tmp_path, variables) == gib * GIB and core_limit(tmp_path, variables) == cores
    without = memory_bytes(), num_cores()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert memory_bytes() == min(without[0], gib * GIB) and num_cores() == min(without[1], cores)
