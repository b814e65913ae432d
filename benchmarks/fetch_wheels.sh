#!/usr/bin/env bash
# benchmarks/fetch_wheels.sh [FOLDER=.wheels] [PYTHON_VERSION=3.12]
# Downloads what a machine without network may lack beside JAX, flax, optax, orbax, aiohttp and rich.
set -eu
folder=${1:-.wheels} version=${2:-3.12}
platforms=()
for platform in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${platform}_x86_64")
done
${PYTHON:-python3} -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
    --python-version "$version" "${platforms[@]}" --dest "$folder" \
    nle==1.3.0 gymnasium==1.2.0 farama-notifications==0.0.6 tensorboardX==2.6.5 \
    pydantic-monty==1.4.0 pydantic-monty-client==1.4.0 pydantic-monty-runtime==1.4.0 \
    minigrid==3.2.0 pygame-ce==2.5.8
ls -l "$folder"
