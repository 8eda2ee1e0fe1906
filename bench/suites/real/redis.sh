#!/bin/sh
# Redis under a fixed load: `redis.sh REQUESTS`, a file in Redis's protocol. This process becomes the server, so its
# time and memory are those of the program; the client is not its child and runs without the preloaded allocator. The
# client sends the file, checks what the server holds, and stops it.
# SPDX-License-Identifier: MIT
set -eu
# shellcheck source=bench/suites/real/redis_client.sh
. "$(dirname "$0")/redis_client.sh"

drive() {
  await_server
  start=$(date +%s%N)
  ask --pipe <"$1" | tail -1
  end=$(date +%s%N)
  echo "redis ops/s: $(($(grep -c '^\*' "$1") * 1000000000 / (end - start)))"
  ask --no-raw lrange list:1 0 1
  ask debug digest
  ask dbsize
  ask shutdown nosave
}

(unset LD_PRELOAD && drive "$1" &)
exec redis-server --port 0 --unixsocket "$socket" --save '' --enable-debug-command local --logfile /dev/null
