#!/bin/sh
# Flower's simulation: all clients in one process tree, no TLS. Needs pip install 'flwr[simulation]==1.41.0' (Ray).
# usage: sh simulate.sh FOLDER     (FOLDER is made by prepare.py)
# `flwr run ... local` starts a SuperLink on 127.0.0.1:39091 and leaves it running, with the environment of its start.
set -eu
folder=$(realpath "$1")
app=$(dirname "$(realpath "$0")")/app
export FLWR_HOME="$folder/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export SECEA_SERVER="$folder/server/site.toml" SECEA_SITE="$folder/{partition-id}/site.toml"
flwr run "$app" local --stream --federation-config 'num-supernodes=5 client-resources-num-cpus=1'
