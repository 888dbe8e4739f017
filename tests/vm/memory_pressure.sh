#!/usr/bin/env bash
# runs: on the host
# A volume attached on the same host survives memory pressure: little memory, a writer over the
# device that dirties far more than there is, and hogs beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
LUKS=${LUKS:-target/debug/luks}
command -v cryptsetup >/dev/null || { echo "skipped: needs cryptsetup"; exit 77; }
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
printf 'small' >"$work/key"
truncate -s 400M "$work/v.img"
cryptsetup luksFormat -q --type luks2 --sector-size 4096 --pbkdf pbkdf2 \
  --pbkdf-force-iterations 1000 "$work/v.img" "$work/key"
VM_OUT=$work tools/vm-run -m 384 -t 420 -- env LUKS="$LUKS" bash -c '
  set -eu
  modprobe nbd
  device=$("$LUKS" open "$VM_OUT/v.img" small --key-file "$VM_OUT/key" --attach nbd)
  # Anonymous memory that is in use: reclaim has to write out over the device to get any.
  python3 -c "
import time
hog = bytearray(100 << 20)
for i in range(0, len(hog), 4096): hog[i] = 1
time.sleep(400)" & hog=$!
  mkfs.ext4 -q "$device"
  mkdir -p /mnt/v; mount "$device" /mnt/v
  for n in 1 2 3 4; do
    head -c 70M /dev/zero | tr "\0" "$n" >/mnt/v/f$n & writers="${writers-} $!"
  done
  wait $writers
  sync -f /mnt/v
  kill $hog
  echo 3 >/proc/sys/vm/drop_caches
  for n in 1 2 3 4; do
    head -c 70M /dev/zero | tr "\0" "$n" | cmp - /mnt/v/f$n
  done
  umount /mnt/v
  fsck.ext4 -fn "$device" >/dev/null 2>&1
  "$LUKS" close small
  echo "280 MiB written and read back with 384 MiB of memory"'
