#!/bin/sh
# A real deployment on this machine's loopback: a server, five clients, mutual TLS, one job.
# usage: sh deploy.sh FOLDER [PORT]     (FOLDER is made by prepare.py; the server listens on PORT: 18002)
set -eu
example=$(dirname "$(realpath "$0")")
port=${2:-18002}
if ! python3 -c "import socket; socket.create_server(('127.0.0.1', $port))" 2> /dev/null; then
  echo "Port $port is in use: stop what uses it, or choose another: sh deploy.sh $1 PORT"
  exit 1
fi
cd "$1"
folder=$(pwd)
started=
trap 'for pid in $started; do kill -- -$pid 2>/dev/null || true; done' EXIT

# The operator of the deployment: certificates and a startup kit for each party.
sed "s/fed_learn_port: 18002/fed_learn_port: $port/" "$example/project.yml" > project.yml
nvflare provision -p project.yml -w kits
kits=$folder/kits/kg/prod_00

# Each operator, at its own site: where the site's file is, and that these jobs may run; then start.
start() {
  ln -s "$folder/$2/site.toml" "$kits/$1/local/secea.toml"
  secea permit "$kits/$1"
  setsid "$kits/$1/startup/sub_start.sh" --once > "$2/nvflare.log" 2>&1 &
  started="$started $!"
}
start localhost server
for site in north east south west harbour; do start $site $site; done

# Whoever may submit jobs.
python3 "$example/job.py" "$kits/admin@example.com" admin@example.com
