# The phases of a batch job, the same for every batch system; sourced by summit.lsf and slurm.sh, which set
#   CONFIG RUN BB KEEP SIM_SECONDS PYTHON NODES RANKS    see there
#   own_gpu, all_gpus    arrays: how to launch one rank a GPU, each seeing its own GPU or all of its node
# and whose arguments (--set ...) go to simulation and training.
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

if [ -n "$KEEP" ] && [ -e "$KEEP/manifest.jsonl" ]; then
    phase "fetch what is kept in $KEEP, a part to each node" \
        "${own_gpu[@]}" "$PYTHON" -m train stage "$KEEP" "$BB" --partition
fi

phase "simulate into $BB for at most $SIM_SECONDS s" \
    "${own_gpu[@]}" "$PYTHON" -m namsa dataset "$CONFIG" --out "$BB" --time-limit "$SIM_SECONDS" "$@"

if [ -n "$KEEP" ]; then
    phase "copy the samples home to $KEEP" "${own_gpu[@]}" "$PYTHON" -m train keep "$BB" "$KEEP"
fi

# What the time did not suffice for stays out: the training job would simulate all that is missing.
phase "train from $BB; results go home to $RUN at every checkpoint and at the end" \
    "${all_gpus[@]}" "$PYTHON" -m train "$CONFIG" --run-dir "$BB-run" --home "$RUN" \
    --set "data.directory=$BB" --set data.node_local=true --set training.simulate_seconds=1 "$@"

echo "== $(date '+%F %T') done: $RUN/report.html"
