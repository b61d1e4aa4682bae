# The phases of a batch job, the same for every batch system; sourced by summit.lsf and slurm.sh, which set
#   CONFIG RUN BB KEEP MANIFEST SIM_SECONDS ENVIRONMENT PYTHON PREFLIGHT NODES RANKS    see there
#   own_gpu, all_gpus    arrays: how to launch one rank a GPU, each seeing its own GPU or all of its node
#   each_node, one       arrays: how to launch one process a node, or one on the first node
# and whose arguments (--set ...) go to preflight, simulation and training.
# The first failure of any rank ends its phase, and with it the job.
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

# One read of one file a node, in place of thousands by every rank.
python=("$PYTHON")
if [ -z "$PYTHON" ]; then
    if [ ! -e "$ENVIRONMENT" ]; then
        echo "error: there is no $ENVIRONMENT: make it with scripts/environment.sh pack $ENVIRONMENT, or set PYTHON" >&2
        exit 2
    fi
    newer=$(find namsa fcdensenet train -name '*.py' -newer "$ENVIRONMENT" -print -quit)
    if [ -n "$newer" ]; then
        echo "error: $newer is newer than $ENVIRONMENT: scripts/environment.sh pack $ENVIRONMENT" >&2
        exit 2
    fi
    phase "unpack $ENVIRONMENT into $BB-env" "${each_node[@]}" bash scripts/environment.sh unpack "$ENVIRONMENT" "$BB-env"
    # Safe path: the packages in this folder stay out, since those of the archive are meant.
    libraries=$BB-env/libpython${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    python=(env PYTHONSAFEPATH=1 "LD_LIBRARY_PATH=$libraries" "$BB-env/bin/python")
fi

# The list of samples is made once: for many derived crystals that takes minutes. All ranks read it on their node's disk,
# and compare it with their own sources: ranks that would list other samples, since they see fewer CIF files, end the job.
mkdir -p "$(dirname "$RUN")"
exchange=$(mktemp -d "$RUN.preflight-XXXXXX")
kept=()
if [ -n "$KEEP" ] && [ -e "$KEEP/manifest.jsonl" ]; then
    kept=(--manifest "$KEEP")
else
    if [ -z "$MANIFEST" ]; then
        MANIFEST=$exchange/list
        phase "list the samples" "${one[@]}" "${python[@]}" -m namsa dataset "$CONFIG" --out "$MANIFEST" --manifest-only "$@"
    fi
    # Under another name first: where nodes share a folder, `cp` of one fails while another makes the file.
    phase "copy the list of samples of $MANIFEST" \
        "${each_node[@]}" bash -c 'mkdir -p "$1" && part=$1/.manifest.$HOSTNAME.$$ &&
            cp "$0/manifest.jsonl" "$part" && mv -f "$part" "$1/manifest.jsonl"' "$MANIFEST" "$BB"
fi

# shellcheck disable=SC2086
phase "preflight" "${own_gpu[@]}" "${python[@]}" -m train preflight "$CONFIG" $PREFLIGHT --exchange "$exchange" \
    "${kept[@]}" --set "data.directory=$BB" --set data.source.node_local=true "$@"
rm -r "$exchange"

if [ ${#kept[@]} -gt 0 ]; then
    phase "fetch what is kept in $KEEP, a part to each node" \
        "${own_gpu[@]}" "${python[@]}" -m train stage "$KEEP" "$BB" --partition
fi

phase "simulate into $BB for at most $SIM_SECONDS s" \
    "${own_gpu[@]}" "${python[@]}" -m namsa dataset "$CONFIG" --out "$BB" --time-limit "$SIM_SECONDS" "$@"

if [ -n "$KEEP" ]; then
    phase "copy the samples home to $KEEP" "${own_gpu[@]}" "${python[@]}" -m train keep "$BB" "$KEEP"
fi

# What the time did not suffice for stays out: the training job would simulate all that is missing.
phase "train from $BB; results go home to $RUN at every checkpoint and at the end" \
    "${all_gpus[@]}" "${python[@]}" -m train "$CONFIG" --run-dir "$BB-run" --home "$RUN" \
    --set "data.directory=$BB" --set data.source.node_local=true --set training.simulate_seconds=1 "$@"

echo "== $(date '+%F %T') done: $RUN/report.html"
