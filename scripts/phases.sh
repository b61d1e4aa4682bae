# The phases of a batch job, the same for every batch system; sourced by summit.lsf and slurm.sh, which set
#   CONFIG RUN BB KEEP SIM_SECONDS PYTHON NODES RANKS    see there
#   own_gpu, all_gpus    arrays: how to launch one rank a GPU, each seeing its own GPU or all of its node
#   RANK_VARIABLE        the name of the variable in which the launcher tells a rank its number
# and whose arguments (--set ...) go to both commands.
# The first failure of any rank ends the job with its exit status.
# shellcheck shell=bash disable=SC2154

# In the background, so that a signal (the warning before the time limit) is heard at once.
phase() {
    echo "== $(date '+%F %T') $1 (nodes: $NODES, ranks: $RANKS)"
    shift
    "$@" &
    step=$!
    wait "$step"
}

interrupted() {
    trap '' TERM INT
    echo "== $(date '+%F %T') interrupted; submit again with RUN=$RUN to go on from the last checkpoint" >&2
    if [ -n "${step:-}" ] && kill -TERM "$step" 2>/dev/null; then
        wait "$step" || true
    fi
    exit 130
}
trap interrupted TERM INT

# FROM TO VARIABLE: each rank copies its own shard, so finds it again in a job of as many ranks; rank 0 adds the manifest.
# shellcheck disable=SC2016
copy_shards='
    shard=shard-$(printf %05d "${!3}").lmdb
    mkdir -p "$2"
    if [ -e "$1/$shard" ]; then cp "$1/$shard" "$2/$shard.part"; mv "$2/$shard.part" "$2/$shard"; fi
    if [ "${!3}" = 0 ] && [ -e "$1/manifest.jsonl" ]; then cp "$1/manifest.jsonl" "$2/"; fi'
kept=$KEEP/$RANKS-ranks

if [ -n "$KEEP" ]; then
    phase "fetch what an earlier job left in $kept" "${own_gpu[@]}" bash -ec "$copy_shards" copy "$kept" "$BB" "$RANK_VARIABLE"
fi

phase "simulate into $BB for at most $SIM_SECONDS s" \
    "${own_gpu[@]}" "$PYTHON" -m namsa dataset "$CONFIG" --out "$BB" --time-limit "$SIM_SECONDS" "$@"

if [ -n "$KEEP" ]; then
    phase "keep the samples in $kept" "${own_gpu[@]}" bash -ec "$copy_shards" copy "$BB" "$kept" "$RANK_VARIABLE"
fi

# What the time did not suffice for stays out: the training job would simulate all that is missing.
phase "train into $RUN" \
    "${all_gpus[@]}" "$PYTHON" -m train "$CONFIG" --run-dir "$RUN" \
    --set "data.directory=$BB" --set data.node_local=true --set training.simulate_seconds=1 "$@"

echo "== $(date '+%F %T') done: $RUN/report.html"
