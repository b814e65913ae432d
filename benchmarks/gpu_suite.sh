#!/usr/bin/env bash
# benchmarks/gpu_suite.sh OUT_DIR [WHEELS_DIR]
#
# The benchmarks on a machine with a GPU, from the repository's root, without network. WHEELS_DIR holds what is missing
# there (benchmarks/fetch_wheels.sh fills it). Each stage writes OUT_DIR/STAGE.json and OUT_DIR/STAGE.log, and stays
# within MINUTES; the figures that matter most come first, and a part that fails or takes too long stops no other.
#
#   STAGE=kernels|end_to_end|worlds   (all three when left out)
#   MINUTES=9    of each stage
#   SMOKE=1      small sizes, to try it out anywhere              PYTHON=python3
set -u
out=$(realpath -m "${1:?"the folder for the figures, as first argument"}")
wheels=${2:-}
minutes=${MINUTES:-9} python=${PYTHON:-python3}
work=$(mktemp -d) && mkdir -p "$out" || exit 1
trap 'rm -rf "$work"' EXIT
export XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-/tmp/oni_jax_compiled}

if [ -n "$wheels" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/site" "$wheels"/*.whl ||
        exit 1
    export PYTHONPATH="$work/site${PYTHONPATH:+:$PYTHONPATH}"
fi

cores=$(nproc)
if [ -n "${SMOKE:-}" ]; then
    smoke=(--smoke) batch=64 batches=64 acting=16 games=4 processes=2 secs=30
    train="--num_workers 1 --num_envs_per_worker 4 --batch_size 128 --hidden_size 32 --log_every_sec 0.5"
    large=$train
    start=$train device="--hidden_size 32 --log_every_sec 0.5 --batch_size 128"
else
    smoke=() batch=16384 batches="4096 65536 131072" acting=1024,4096,16384,32768 games=128 processes=$cores secs=90
    train="--num_envs_per_worker 0 --batch_size 0 --precision auto"
    large="--num_envs_per_worker 512 --batch_size 65536 --precision auto"
    start="--config gpu_extrinsic" device="--hidden_size 128 --precision auto --batch_size 524288"
fi

# part NAME LIMIT_SECS MODULE FLAGS...: runs one, within the stage's time, and adds its figures to those of the stage.
part() {
    local name=$1 limit=$2 module=$3 left=$((deadline - $(date +%s))) code=1
    shift 3
    echo "== $name, $left s left: $module $*"
    [ "$left" -gt 5 ] && timeout -k 10 $((limit < left ? limit : left)) \
        "$python" -m "benchmarks.$module" "${smoke[@]}" --json "$work/json/$name.json" "$@"
    code=$?
    echo "$name $code" >>"$work/exit_codes"
    "$python" - "$work" "$out/$stage.json" <<'PYTHON'
import json, pathlib, sys
work, path = map(pathlib.Path, sys.argv[1:])
codes = dict(line.split() for line in (work / "exit_codes").read_text().splitlines())
parts = {file.stem: json.loads(file.read_text()) for file in sorted((work / "json").glob("*.json"))}
path.write_text(json.dumps({"exit_codes": codes, "parts": parts}, indent=1) + "\n")
PYTHON
}

kernels() {
    part update_bfloat16 200 update --precisions bfloat16 --batch_sizes $batch --secs 1
    part inference 120 inference --precisions bfloat16 --batch_sizes $acting --secs 0.5 --repeats 3
    part env_step 160 env_step --processes "$processes" --envs $games
    for size in $batches; do
        part "update_bfloat16_$size" 60 update --precisions bfloat16 --batch_sizes "$size" --secs 1 --notorch_compile
    done
    part update_tf32 60 update --precisions tf32 --batch_sizes $batch --secs 1 --notorch_compile
    part update_float32 60 update --precisions float32 --batch_sizes $batch --secs 1 --notorch_compile
    part reward 60 reward --batch_sizes $batch --repeats 3
}

end_to_end() {
    part end_to_end 300 end_to_end --secs $secs --warm_up_secs $((secs / 3)) --repeats 1 \
        --reward_types online_cls,none --train_flags "$train"
    part end_to_end_large 180 end_to_end --secs $secs --warm_up_secs $((secs / 3)) --repeats 1 \
        --reward_types online_cls --train_flags "$large"
    part end_to_end_map 180 end_to_end --secs $secs --warm_up_secs $((secs / 3)) --repeats 1 \
        --reward_types online_cls --train_flags "$train --view map"
}

worlds() {
    part startup 200 startup --repeats 1 --train_flags "$start"
    for world in Crafter-v1 BabyAI-Text-GoToLocal-RedBall-S20; do
        part "$world" 120 end_to_end --secs $((secs / 2)) --warm_up_secs $((secs / 4)) --repeats 1 --reward_types none \
            --train_flags "--root_env $world --encoder_custom generic_encoder --use_rnn False $device"
    done
}

for stage in ${STAGE:-kernels end_to_end worlds}; do
    deadline=$(($(date +%s) + minutes * 60))
    rm -rf "$work/json" "$work/exit_codes" && mkdir "$work/json"
    {
        nvidia-smi 2>&1
        "$python" -c 'import sys, jax; print(sys.version, jax.__version__, jax.devices())'
        "$stage"
    } 2>&1 | tee "$out/$stage.log"
done
