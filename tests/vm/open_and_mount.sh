#!/usr/bin/env bash
# runs: on the host
# A volume opened, made into a file system, filled, closed and opened again: natively by FUSE and
# a loop device, in the virtual machine by our kernel nbd attach and by stock nbd-client; then
# cryptsetup with dm-crypt sees the same tree. At all four sector sizes, and with LUKS1. The other
# way too: dm-crypt writes, we read.
set -euo pipefail
cd "$(dirname "$0")/../.."
LUKS=${LUKS:-target/debug/luks}
for tool in cryptsetup mkfs.ext4 nbd-client; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
printf 'tree' >"$work/key"
mkdir "$work/tree" && cp -r src docs Cargo.lock "$work/tree/"
for kind in luks1-512 luks2-512 luks2-1024 luks2-2048 luks2-4096; do
  size=${kind#*-}
  truncate -s 64M "$work/$kind.img"
  options="--type ${kind%-*}"
  [ $kind = luks1-512 ] || options="$options --sector-size $size"
  cryptsetup luksFormat -q $options --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
    "$work/$kind.img" "$work/key"
done

cat >"$work/round.sh" <<'R'
# round.sh FOLDER ATTACH: for each image, a file system through us, twice opened.
set -euo pipefail
cd "$1"
for image in luks*.img; do
  name=t-${image%.img}; size=${name##*-}; mnt=$(mktemp -d)
  device=$("$LUKS" open "$image" "$name" --key-file key --attach "$2")
  [ "$(blockdev --getss "$device")" = "$size" ] && [ "$(blockdev --getpbsz "$device")" = "$size" ] ||
    { echo "$device has blocks of $(blockdev --getss $device)/$(blockdev --getpbsz $device), not $size"; exit 1; }
  mkfs.ext4 -q -F "$device"
  mount "$device" "$mnt"; cp -r tree "$mnt/"
  if "$LUKS" close "$name" 2>/dev/null; then echo "closed while mounted"; exit 1; else [ $? = 5 ]; fi
  umount "$mnt"; "$LUKS" close "$name"
  device=$("$LUKS" open "$image" "$name" --key-file key --attach "$2")
  fsck.ext4 -fn "$device" >/dev/null 2>&1
  mount -o ro "$device" "$mnt"; diff -r tree "$mnt/tree"; umount "$mnt"
  "$LUKS" close "$name"
  if [ "$2" = nbd ]; then
    "$LUKS" serve "$image" --key-file key --socket "/tmp/$name" >/tmp/$name.ready & server=$!
    until grep -qs nbd /tmp/$name.ready; do sleep 0.1; done
    nbd-client -unix "/tmp/$name" /dev/nbd7 -b "$size" >/dev/null 2>&1
    mount /dev/nbd7 "$mnt"; diff -r tree "$mnt/tree"; rm -r "$mnt/tree"; cp -r tree "$mnt/tree"
    umount "$mnt"; nbd-client -d /dev/nbd7 >/dev/null; kill $server; wait $server
  fi
  echo "$image by $2: same tree, fsck clean"
done
R

if [ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ]; then
  LUKS=$(realpath "$LUKS") bash "$work/round.sh" "$work" fuse
else
  echo "skipped: needs root, /dev/fuse and loop devices for the native round"
fi

VM_OUT=$work tools/vm-run -t 500 -- env LUKS="$(realpath "$LUKS")" bash -c '
  set -euo pipefail
  modprobe dm-crypt; modprobe loop; modprobe nbd; modprobe ext4
  mkdir /tmp/w; cp -r $VM_OUT/*.img $VM_OUT/key $VM_OUT/tree /tmp/w; cd /tmp/w
  by_dm_crypt() {
    for image in luks*.img; do
      cryptsetup open --key-file key $image v
      fsck.ext4 -fn /dev/mapper/v >/dev/null 2>&1
      mount /dev/mapper/v /mnt; diff -r tree /mnt/tree
      cp -r tree /mnt/by-dm-crypt; umount /mnt
      cryptsetup close v
      device=$("$LUKS" open $image back --key-file key --attach nbd)
      mount -o ro $device /mnt; diff -r tree /mnt/by-dm-crypt; umount /mnt
      "$LUKS" close back
      echo "$image: dm-crypt sees our tree, and we see its"
    done
  }
  bash $VM_OUT/round.sh /tmp/w nbd
  by_dm_crypt'
