#!/usr/bin/env bash
# runs: on the host
# kill -9 under load, the same command again: a client that reconnects (qemu's reconnect-delay)
# goes on and every write it was told of is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
LUKS=${LUKS:-target/debug/luks}
for tool in qemu-io cryptsetup; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
server=
trap 'kill -9 $server 2>/dev/null || true; rm -rf "$work"' EXIT
printf 'again' >"$work/key"
truncate -s 80M "$work/v.img"
cryptsetup luksFormat -q --type luks2 --sector-size 512 --pbkdf pbkdf2 \
  --pbkdf-force-iterations 1000 "$work/v.img" "$work/key"
start() {
  "$LUKS" serve "$work/v.img" --key-file "$work/key" --socket "$work/s" >"$work/ready" &
  server=$!
  for _ in $(seq 100); do
    grep -qs nbd "$work/ready" && return
    sleep 0.05
  done
  echo "the server didn't get ready"; return 1
}
start
{
  for n in $(seq 0 199); do
    echo "write -P $((n % 255 + 1)) $((n * 256))k 256k"
    sleep 0.02
  done
  for n in $(seq 0 199); do echo "read -P $((n % 255 + 1)) $((n * 256))k 256k"; done
} | qemu-io --image-opts "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=$work/s,file.reconnect-delay=20" \
  >"$work/qemu-io.out" 2>&1 & client=$!
for _ in 1 2 3; do
  sleep 1
  kill -9 $server; wait $server 2>/dev/null || true
  start
done
wait $client || { cat "$work/qemu-io.out"; exit 1; }
if grep -iE 'fail|error|verif' "$work/qemu-io.out"; then exit 1; fi
[ "$(grep -c 'wrote 262144/262144' "$work/qemu-io.out")" = 200 ]
[ "$(grep -c 'read 262144/262144' "$work/qemu-io.out")" = 200 ]
echo "200 writes over three deaths of the server, all read back"
kill -TERM $server; wait $server
