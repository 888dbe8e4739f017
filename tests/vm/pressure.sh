#!/usr/bin/env bash
# A volume attached on the same machine survives memory pressure: the kernel frees memory by
# writing to a device that our own server serves. Give the machine little memory (512 MiB) and a
# disk of 2 GiB, /dev/vda.
# vm: -m 512 -d 2048
. "$(dirname "$0")/lib.sh"
modprobe nbd
disk=${1:-/dev/vda}
for how in nbd fuse; do
  begin "more written than there is memory, by $how"
  cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$disk" key
  dev=$(luks open "$disk" vol --key-file key --attach $how)
  mkfs.ext4 -q "$dev"
  mount "$dev" mnt
  # Eats what is free, and keeps it, so that every page written has to be freed by writing.
  free_mib=$(awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
  mkdir ram && mount -t tmpfs -o size=100% ram ram
  dd if=/dev/zero of=ram/eaten bs=1M count=$((free_mib - 150)) status=none
  timeout 250 dd if=/dev/urandom of=mnt/file bs=1M count=500 status=none
  timeout 100 sync -f mnt
  sum=$(sha256sum <mnt/file)
  echo 3 >/proc/sys/vm/drop_caches
  is "$(sha256sum <mnt/file)" "$sum"
  rm mnt/file
  umount mnt
  umount ram && rmdir ram
  luks close vol
  nothing_left
done
echo "all held"
