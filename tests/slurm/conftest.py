"""One cluster for all tests of this folder; they are skipped where Slurm isn't installed."""

import pytest

from tests.slurm.cluster import Cluster, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    if missing():
        pytest.skip(f"no {', '.join(missing())} on this machine (Debian: apt-get install slurm-wlm)")
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
