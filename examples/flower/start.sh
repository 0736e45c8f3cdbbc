#!/usr/bin/env bash
# A federation on this machine: a SuperLink and $NODES SuperNodes on the loopback, with TLS and node authentication.
# Certificates and keys are made here, live for a day and lie in $LAB, which only its owner can read.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/common.sh"
umask 077

if [ -e "$LAB/keys" ]; then
  echo "start.sh: a lab runs in $LAB already, run stop.sh first or choose another LAB" >&2
  exit 2
fi
for tool in openssl ssh-keygen setsid flower-superlink; do
  command -v "$tool" > /dev/null || { echo "start.sh: $tool is not installed" >&2; exit 2; }
done
mkdir -p "$LAB/keys" "$LAB/pids" "$LAB/logs" "$FLWR_HOME"
trap 'echo "start.sh: failed, see $LAB/logs" >&2; "$HERE/stop.sh" --keep-logs' ERR

cd "$LAB/keys"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 1 -subj /CN=gradveil-lab \
  -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -subj /CN=localhost \
  -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' > extensions
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile extensions \
  -out server.pem 2>/dev/null
for ((k = 0; k < NODES; k++)); do
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "node$k" -f "node$k"
done
chmod 600 ./*

cat > "$FLWR_HOME/config.toml" <<TOML
[superlink]
default = "lab"
[superlink.lab]
address = "127.0.0.1:$PORT"
root-certificates = "$LAB/keys/ca.crt"
TOML

# a session of its own for each, so that stop.sh ends what they started too
launch() {
  local name=$1
  shift
  setsid "$@" > "$LAB/logs/$name.log" 2>&1 < /dev/null &
  echo $! > "$LAB/pids/$name"
}

launch superlink flower-superlink --host 127.0.0.1 --port "$PORT" --enable-supernode-auth \
  --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key

retry() {
  local tries=$1
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 1
  done
}

listening() { (exec 3<> "/dev/tcp/127.0.0.1/$PORT") 2> /dev/null; }
retry 60 listening
for ((k = 0; k < NODES; k++)); do
  retry 10 flwr supernode register "node$k.pub" lab >> "$LAB/logs/register.log" 2>&1
done
for ((k = 0; k < NODES; k++)); do
  launch "node$k" flower-supernode --superlink "127.0.0.1:$PORT" --root-certificates ca.crt \
    --host 127.0.0.1 --port $((PORT + 100 + k)) --auth-supernode-private-key "node$k" \
    --node-config "partition-id=$k num-partitions=$NODES"
done

all_online() { [ "$(flwr supernode list lab 2>> "$LAB/logs/register.log" | grep -c online)" -ge "$NODES" ]; }
retry 60 all_online
trap - ERR
echo "$NODES nodes are online. Next:"
echo "  FLWR_HOME=$FLWR_HOME flwr run app lab --stream -c 'folder=\"$LAB/seen\"'"
