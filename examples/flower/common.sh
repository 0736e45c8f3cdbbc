# Sourced by start.sh and stop.sh: where the lab lies, and what Flower may not do.
LAB=${LAB:-$PWD/lab}
case $LAB in /*) ;; *) LAB=$PWD/$LAB ;; esac
NODES=${NODES:-4}
PORT=${PORT:-8000}
export FLWR_HOME="$LAB/flwr"
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export RAY_USAGE_STATS_ENABLED=0
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
