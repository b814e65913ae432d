#!/bin/bash
# An LLM server on one GPU and training on the others of this machine.
#   MODEL=Qwen/Qwen2.5-7B-Instruct launch/local.sh --llm_reward_type online_cls ...
# Of the GPUs (CUDA_VISIBLE_DEVICES, or all) the server's is the first. Ctrl-C, TERM and USR1 have training save; then
# both end. MODEL names the model that is served and asked. The other settings: job.sh.
started=()
for name in MODEL PORT NUM_SERVER_GPUS SERVER_COMMAND; do [ -z "${!name}" ] || started+=("$name=${!name}"); done
printf -v ONI_STARTED_BY '%q ' ${started[@]:+env "${started[@]}"} "$0" "$@"
source "$(dirname "${BASH_SOURCE[0]}")/job.sh"
trap asked=TERM INT TERM HUP

check_flags "$@"
split_gpus
start_server 127.0.0.1 env CUDA_VISIBLE_DEVICES="$server_gpus"
train env CUDA_VISIBLE_DEVICES="$train_gpus" -- "$@"
exit "$code"
