# Sourced by local.sh and the scripts in slurm/: an LLM server, training against it, and how both end.
# The environment may say otherwise:
PYTHON=${PYTHON:-.venv/bin/python}
id=${SLURM_JOB_ID:-}
MODEL=${MODEL:-} # that is served, and asked for whatever --llm_model says; empty: what that says
export PORT=${PORT:-$((id ? 10000 + id % 20000 : 9001))} # jobs that share a node do not share a port
NUM_SERVER_GPUS=${NUM_SERVER_GPUS:-1} # of those that the server and training share out
# Where training is on another node than the server, this must listen on all interfaces, as vLLM does.
SERVER_COMMAND=${SERVER_COMMAND:-'vllm serve "$MODEL" --port "$PORT" --enable-prefix-caching'\
" --tensor-parallel-size $((NUM_SERVER_GPUS > 1 ? NUM_SERVER_GPUS : 1))"}
MAX_KILLS=${MAX_KILLS:-3} # times that a job whose task was killed goes back into the queue
SERVER_LOG=${SERVER_LOG:-llm_server-${id:-local}.log}
export ONI_STARTED_BY # the command that began this, which training shows at its end
export SLURM_EXPORT_ENV=ALL # or a step would have of this only what sbatch's --export named

# A task of an array by that name: one of them has the whole array's id.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$id}
server= host= started= code=0
asked= # a signal that training is to get
over= # whether the job is being ended

# Ahead of the time limit comes USR1, to the script alone; srun hands it on. Training saves and ends.
trap 'say "USR1: training saves and ends"; asked=USR1' USR1
# TERM (scancel, the limit itself) comes to every process: training has had its own, to srun it means KILL. With a
# preemption's grace time it comes to the steps that srun has started, and not to the script.
trap 'say "TERM is passed over"; over=yes' TERM

say() { echo "$(date +%H:%M:%S) $*"; }

alive() { kill -0 -- "$1" 2> /dev/null; }

# Shares out this machine's GPUs: the first for the server, the others for training.
split_gpus() {
    local all=${CUDA_VISIBLE_DEVICES-$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | paste -sd,)}
    local IFS=, gpus
    read -ra gpus <<< "$all"
    server_gpus="${gpus[*]:0:NUM_SERVER_GPUS}"
    train_gpus="${gpus[*]:NUM_SERVER_GPUS}"
    [ -z "$all" ] || [ -n "$train_gpus" ] || { say "no GPU is left for training: of $all the server takes all"; exit 2; }
}

# check_flags FLAGS...: ends here, rather than when a server has been loaded, if training would refuse them. Sets $MODEL.
check_flags() {
    local script of_job=(--gpus_per_node 0 --server beside)
    [ -n "$id" ] || of_job+=(--time 0) # no limit, at which a job would start again
    script=$("$PYTHON" -m launch.submit --dry_run "${of_job[@]}" -- "$@" --llm_server_addr=) || exit
    [ -n "$MODEL" ] || eval "$(grep --max-count=1 '^MODEL=' <<< "$script")"
    export MODEL=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
}

# start_server HOST WORDS...: runs $SERVER_COMMAND behind WORDS, and waits as long as it lives until it answers at HOST.
start_server() {
    host=$1
    command -v curl > /dev/null || { say "curl is missing, which asks whether the server answers; install it"; exit 2; }
    if answers; then
        say "something else answers at $host:$PORT; choose another PORT"
        exit 1
    fi
    say "LLM server on $host, port $PORT: $SERVER_COMMAND (its output: $SERVER_LOG)"
    setsid "${@:2}" bash -c "$SERVER_COMMAND" < /dev/null &> "$SERVER_LOG" &
    server=$!
    trap end_server EXIT
    until answers; do
        [ -z "$asked$over" ] || return
        lost_server "before it answered" && exit 1
        sleep 1
    done
    say "the LLM server answers"
}

# Any answer counts, be it that a key is missing, but for those from 500 on, such as "still loading".
answers() {
    [[ $(curl --silent --noproxy '*' --max-time 10 --output /dev/null --write-out '%{http_code}' \
        "http://$host:$PORT/v1/models") == [234]?? ]]
}

# Preempted with a grace time, in which what srun has started gets TERM.
preempted() { [ -n "$job" ] && scontrol show job "$job" | grep --quiet ' PreemptTime=[0-9]'; }

# lost_server WHEN: whether the server has ended by itself, and why. When it ends with the job, training does too.
lost_server() {
    alive "$server" && return 1
    preempted && over=yes && return 1
    wait "$server"
    local status=$? name=
    ((status > 128)) && name=$(kill -l "$status" 2> /dev/null)
    say "the LLM server on $host ended $1 (${name:+signal }${name:-exit code $status}); the end of $SERVER_LOG:"
    tail -n 20 "$SERVER_LOG"
    return 0
}

# Ends the server and all that it has started: a process group of its own.
end_server() {
    [ -n "$server" ] || return
    kill -TERM -- "-$server" 2> /dev/null
    for _ in {1..100}; do
        alive "-$server" || return
        sleep 0.1
    done
    kill -KILL -- "-$server" 2> /dev/null
}

# train WORDS... -- FLAGS...: trains, behind WORDS, until it ends or the server does. Leaves the exit code in $code.
train() {
    local words=() flags=() trainer lost= told= seed=${SLURM_ARRAY_TASK_ID:-}
    while [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    # What has to hold in a job comes last, and so wins; training that saved on USR1 and went on would end unsaved.
    flags=("${@:2}" --on_sigusr1 stop)
    [ -z "$seed" ] || flags+=(--seed "$seed" --experiment "${ONI_EXPERIMENT:-$SLURM_JOB_NAME}_seed$seed")
    [ -z "$server" ] || flags+=(--llm_server_addr "$host:$PORT" --llm_model "$MODEL")
    [ -z "$server" ] || export NO_PROXY="$host${NO_PROXY:+,$NO_PROXY}"  # a node is reached directly
    [ -z "$asked$over" ] || return
    started=yes
    "${words[@]}" "$PYTHON" -m launch.train "${flags[@]}" &
    trainer=$!
    while alive "$trainer"; do
        if [ -n "$server" ] && [ -z "$lost$asked$over" ] &&
            lost_server "before training, which now saves and ends"; then
            lost=yes asked=USR1
        fi
        if [ "$asked" != "$told" ]; then
            told=$asked
            kill -s "$told" "$trainer"
        fi
        sleep 1
    done
    wait "$trainer"
    code=$?
    [ -z "$lost" ] || code=1
}

# Whether a task was killed from outside, as for its memory, and not for the last of $MAX_KILLS times. srun's exit code
# is the highest of its tasks', and those that end because another is gone end by themselves: an error is below 128.
was_killed() {
    local kills="killed-$job.log"
    [[ $code == 137 && -n $job && -z "$asked$over" ]] || return 1
    say "a task was killed (exit code $code)" | tee -a "$kills"
    (($(wc -l < "$kills") <= MAX_KILLS)) && return
    say "killed more than $MAX_KILLS times, see $kills: this job ends here"
    return 1
}

# Ends a job with training's exit code, or puts it back into the queue, which ends the script at once. 138 and 143:
# USR1 or TERM ended training before it could listen. Preempted it has had TERM, saved and ended as if it was done.
finish() {
    local again=
    if [[ $code =~ ^(0|138|143)$ ]] && preempted; then
        again=yes
    elif [[ $asked == USR1 && ($code == 0 || $code == 138) ]]; then
        if [[ (-z $started || $code == 138) && SLURM_RESTART_COUNT -ge 3 ]]; then
            say "the time limit came before training started, after $SLURM_RESTART_COUNT restarts: this job ends here"
            exit 1
        fi
        again=yes
    elif was_killed; then
        again=yes
    fi
    if [ -n "$again" ]; then
        end_server
        say "back into the queue"
        scontrol requeue "$job" || code=1
    fi
    exit "$code"
}
