#!/usr/bin/env bash
# runs: on the host
# fio writes at random, unaligned to the sector, over four connections, and verifies; then the
# kernel's dm-crypt reads the same bytes from the image.
set -euo pipefail
cd "$(dirname "$0")/../.."
LUKS=${LUKS:-target/debug/luks}
for tool in fio cryptsetup nbdcopy; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
fio --enghelp | grep -qw nbd || { echo "skipped: needs fio with its nbd engine"; exit 77; }
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
printf 'fio volume' >"$work/key"

for sector in 512 4096; do
  image=$work/v$sector.img
  truncate -s 80M "$image"
  cryptsetup luksFormat -q --type luks2 --sector-size $sector --pbkdf pbkdf2 \
    --pbkdf-force-iterations 1000 "$image" "$work/key"
  export work sector
  # serialize_overlap can't be had with several jobs of one file, and needs none: their ranges
  # don't meet. Within a job it is on.
  "$LUKS" serve "$image" --key-file "$work/key" --socket "$work/s" --run '
    set -e
    fio --name=mixed --ioengine=nbd --uri="$uri" --rw=randwrite --bsrange=512-1m \
      --bs_unaligned=1 --blockalign=512 --size=16m --numjobs=4 --offset_increment=16m \
      --serialize_overlap=1 --iodepth=16 --verify=crc32c --verify_state_save=0 --verify_fatal=1 --do_verify=1 \
      --randrepeat=0 --norandommap=0 --output="$work/fio.out" || { cat "$work/fio.out"; exit 1; }
    fio --name=mixed --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-1m --bs_unaligned=1 \
      --size=16m --numjobs=4 --offset_increment=16m --serialize_overlap=1 --iodepth=16 \
      --verify=crc32c --verify_state_save=0 --verify_fatal=1 --randrepeat=0 --output="$work/fio.out" || { cat "$work/fio.out"; exit 1; }
    nbdcopy "$uri" - | sha256sum >"$work/ours.$sector"'
  echo "sector size $sector: fio verified"
done

VM_OUT=$work tools/vm-run -t 120 -- bash -c '
  set -e
  modprobe dm-crypt
  modprobe loop
  for sector in 512 4096; do
    cp $VM_OUT/v$sector.img /tmp/v.img
    cryptsetup open --readonly --key-file $VM_OUT/key /tmp/v.img v
    sha256sum </dev/mapper/v >$VM_OUT/theirs.$sector
    cryptsetup close v
  done'
for sector in 512 4096; do
  cmp "$work/ours.$sector" "$work/theirs.$sector"
  echo "sector size $sector: dm-crypt reads the same bytes"
done
