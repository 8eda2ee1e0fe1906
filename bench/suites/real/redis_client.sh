# shellcheck shell=sh
# A client of a Redis server on a socket of its own, for scripts that become the server: redis.sh, and flush.sh in
# bench/recipes.
# SPDX-License-Identifier: MIT
socket=$(mktemp -u "${TMPDIR:-/tmp}/hakmem-redis-XXXXXX")

ask() { redis-cli -s "$socket" "$@"; }

await_server() {
  for _ in $(seq 600); do # a minute
    [ -S "$socket" ] && [ "$(ask ping)" = PONG ] && break
    sleep 0.1
  done
}
