# Sourced by the scripts of this folder: what they do, and how long each step of it took.
# shellcheck shell=bash

# step TEXT COMMAND...: does it, and returns what it returns. A terminal sees the seconds meanwhile, unless
# STEP_UNSEEN=1. A function given as the command goes on after a failure within it.
step() {
    local text=$1 began=$SECONDS name ticking='' status=0
    name=$(basename "$0" .sh)
    shift
    printf '%s: %s\n' "$name" "$text" >&2
    if [ -t 2 ] && [ "${STEP_UNSEEN:-}" != 1 ]; then
        # Ends with the script, too, however that ends.
        while sleep 1 && kill -0 $$ 2>/dev/null; do
            printf '\r%s: %d s ' "$name" $((SECONDS - began)) >&2
        done >&2 &
        ticking=$!
    fi
    "$@" || status=$?
    if [ -n "$ticking" ]; then
        kill "$ticking"
        wait "$ticking" 2>/dev/null || true
        printf '\r' >&2
    fi
    [ "$status" != 0 ] || printf '%s: %s: %d s\n' "$name" "$text" $((SECONDS - began)) >&2
    return "$status"
}

# to_log FILE COMMAND...: its output, and its complaints, are in FILE alone.
to_log() {
    local log=$1
    shift
    "$@" >"$log" 2>&1
}
