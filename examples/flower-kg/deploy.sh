#!/bin/sh
# A real deployment on this machine's loopback: SuperLink with TLS, five SuperNodes that it knows by their keys, one run.
# usage: sh deploy.sh FOLDER [PORT]     (FOLDER is made by prepare.py; PORT and the five above it are used: 9400)
set -eu
app=$(dirname "$(realpath "$0")")/app
cd "$1"
folder=$(pwd)
port=${2:-9400}
export FLWR_HOME="$folder/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2
started=
trap 'kill $started 2>/dev/null' EXIT

# The operator of the server: a certificate, the SuperLink, and where `flwr` finds it.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 30 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout server/tls.key -out server/tls.crt 2>/dev/null
SECEA_SERVER="$folder/server/site.toml" flower-superlink --host 127.0.0.1 --port $port --enable-supernode-auth \
  --ssl-certfile server/tls.crt --ssl-keyfile server/tls.key --ssl-ca-certfile server/tls.crt \
  --disable-runtime-dependency-installation > server/superlink.log 2>&1 &
link=$!
started="$started $link"
mkdir -p flwr
cat > flwr/config.toml <<EOF
[superlink]
default = "loopback"

[superlink.loopback]
address = "127.0.0.1:$port"
root-certificates = "$folder/server/tls.crt"
EOF
until curl --silent --max-time 2 --output /dev/null --cacert server/tls.crt "https://127.0.0.1:$port/"; do
  if ! kill -0 $link 2>/dev/null; then
    grep -o 'error while .*' server/superlink.log || tail server/superlink.log
    echo "The SuperLink did not start. If port $port is in use, stop what uses it, or choose another: sh deploy.sh $1 PORT"
    exit 1
  fi
  sleep 1
done

# The operator of each site: a key for its SuperNode, whose public half the server's operator registers.
own=$port
for site in north east south west harbour; do
  ssh-keygen -q -t ecdsa -b 384 -N '' -f "$site/supernode"
  flwr supernode register "$site/supernode.pub" loopback
  own=$((own + 1))
  flower-supernode --superlink "127.0.0.1:$port" --root-certificates server/tls.crt --port $own \
    --auth-supernode-private-key "$site/supernode" --node-config "secea-site=\"$folder/$site/site.toml\"" \
    > "$site/supernode.log" 2>&1 &
  started="$started $!"
done

# Anyone who may start runs.
flwr run "$app" loopback --stream
