#!/bin/sh
# Redis after a flush: the server is filled twice with values of many sizes, flushed, and serves a little; then it
# waits. This process becomes the server; the client is not its child and runs without the preloaded allocator.
# SPDX-License-Identifier: MIT
set -eu
# shellcheck source=bench/suites/real/redis_client.sh
. "$(dirname "$0")/../suites/real/redis_client.sh"

drive() {
  await_server
  for _ in 1 2; do
    ask eval 'for i = 1, 120000 do redis.call("SET", "k" .. i, string.rep("v", i * 37 % 900)) end' 0
    ask flushall sync
  done
  ask eval 'for i = 1, 5000 do redis.call("SET", "n" .. i, string.rep("v", i * 37 % 900)) end' 0
  sleep 1
  ask dbsize
  ask shutdown nosave
}

(unset LD_PRELOAD && drive &)
exec redis-server --port 0 --unixsocket "$socket" --save '' --logfile /dev/null
