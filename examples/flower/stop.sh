#!/usr/bin/env bash
# Ends everything that start.sh started and removes keys and state; captures in $LAB/seen stay where they are.
set -euo pipefail
. "$(dirname "$0")/common.sh"

gone() { ! kill -0 -- "-$1" 2> /dev/null; }

end() {
  kill -TERM -- "-$1" 2> /dev/null || return 0
  for _ in $(seq 50); do
    gone "$1" && return 0
    sleep 0.2
  done
  kill -KILL -- "-$1" 2> /dev/null || true
}

for file in "$LAB"/pids/node* "$LAB"/pids/superlink; do
  [ -e "$file" ] || continue
  end "$(cat "$file")" &
done
wait
rm -rf "$LAB/keys" "$LAB/pids" "$FLWR_HOME"
[ "${1:-}" = --keep-logs ] || rm -rf "$LAB/logs"
rmdir "$LAB" 2> /dev/null || true
