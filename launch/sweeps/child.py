"""A launch.train that the kernel kills when the sweep that started it is gone."""

import os
import sys

from launch.sweeps import SWEEP
from oni_jax.host.runtime import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(os.environ[SWEEP]))  # stays: training may restart itself
    from launch import train  # takes longer than a sweep may live

    sys.exit(train.main(shows_next=False))  # the sweep shows how all of them go on
