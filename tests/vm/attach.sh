#!/usr/bin/env bash
# The kernel's nbd driver and dm-crypt as judges of `luks open`: file systems made on either side
# are whole on the other, at every sector size; a killed server is taken over; nothing is left.
. "$(dirname "$0")/lib.sh"
modprobe nbd
modprobe dm-crypt
modprobe loop # cryptsetup needs it for images in files

for sector in 512 1024 2048 4096; do
  begin "file system at sector size $sector"
  format image 96M $sector
  dev=$(luks open image vol --key-file key)
  [[ $dev == /dev/nbd* ]]
  is "$(sysfs "$dev" queue/logical_block_size)" $sector
  is "$(sysfs "$dev" queue/physical_block_size)" $sector
  mkfs.ext4 -q "$dev"
  mount "$dev" mnt
  cp -r "$tree/src" mnt/
  ends 5 luks close vol
  ends 5 luks open image vol --key-file key
  umount mnt
  luks close vol
  nothing_left

  dev=$(luks open image vol --key-file key)
  e2fsck -fn "$dev"
  mount -o ro "$dev" mnt
  diff -r "$tree/src" mnt/src
  umount mnt
  luks close vol

  cryptsetup open image vol --key-file key
  is "$(blockdev --getss /dev/mapper/vol)" $sector
  is "$(blockdev --getpbsz /dev/mapper/vol)" $sector
  e2fsck -fn /dev/mapper/vol
  mount /dev/mapper/vol mnt
  diff -r "$tree/src" mnt/src
  cp -r "$tree/tests" mnt/
  umount mnt
  cryptsetup close vol

  dev=$(luks open image vol --key-file key --read-only)
  is "$(blockdev --getro "$dev")" 1
  mount -o ro,noload "$dev" mnt
  diff -r "$tree/tests" mnt/tests
  umount mnt
  luks close vol
done

begin "the same by FUSE and a loop device"
format image 96M 4096
dev=$(luks open image vol --key-file key --attach fuse)
[[ $dev == /dev/loop* ]]
is "$(sysfs "$dev" queue/logical_block_size)" 4096
mkfs.ext4 -q "$dev"
mount "$dev" mnt
cp -r "$tree/src" mnt/
ends 5 luks close vol
luks close vol --deferred
is "$(luks status vol --json | jq -r .state)" closing
umount mnt
until_true 10 is_closed
nothing_left
cryptsetup open image vol --key-file key
e2fsck -fn /dev/mapper/vol
mount -o ro /dev/mapper/vol mnt
diff -r "$tree/src" mnt/src
umount mnt
cryptsetup close vol

for how in nbd fuse; do
  begin "partitions by $how"
  format image 96M 512
  dev=$(luks open image vol --key-file key --attach $how)
  printf '1MiB,8MiB\n9MiB,\n' | sfdisk -q --no-reread "$dev"
  luks close vol
  dev=$(luks open image vol --key-file key --attach $how)
  mkfs.ext4 -q "${dev}p2"
  mount "${dev}p2" mnt
  ends 5 luks close vol
  umount mnt
  luks close vol
  nothing_left
done

begin "discards reach the image by nbd"
format image 96M 512
dev=$(luks open image vol --key-file key --allow-discards)
mkfs.ext4 -q "$dev"
mount "$dev" mnt
dd if=/dev/urandom of=mnt/file bs=1M count=40 status=none
sync -f mnt
full=$(stat -c %b image)
rm mnt/file
sync -f mnt
fstrim mnt
[ "$(stat -c %b image)" -lt $((full - 60000)) ]
umount mnt
luks close vol
dev=$(luks open image vol --key-file key)
is "$(sysfs "$dev" queue/discard_max_bytes)" 0
luks close vol

begin "a killed server, mounted and under load, is taken over by the same command"
format image 300M 512
dev=$(luks open image vol --key-file key)
mkfs.ext4 -q "$dev"
mount "$dev" mnt
fio --name=load --filename=mnt/file --size=128M --rw=randwrite --bsrange=512-256k --bs_unaligned \
  --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --output=fio.out >/dev/null 2>&1 &
fio=$!
sleep 4
kill -9 "$(luks status vol --json | jq .pid)"
until_true 10 sh -c "'$LUKS' status | grep -q waiting"
ends 5 luks close vol
ends 5 luks open image vol --key-file key --attach fuse
kill -0 $fio
is "$(luks open image vol --key-file key)" "$dev"
wait $fio || { cat fio.out; exit 1; }
umount mnt
luks close vol
cryptsetup open image vol --key-file key
e2fsck -fn /dev/mapper/vol
cryptsetup close vol
nothing_left

begin "a server that stood still longer than the kernel waits for a request gets new connections"
dev=$(luks open image vol --key-file key)
pid=$(luks status vol --json | jq .pid)
fio --name=load --filename="$dev" --offset=64M --size=6M --rw=randwrite --bs=4k --direct=1 \
  --ioengine=libaio --iodepth=32 --verify=crc32c --verify_fatal=1 --output=fio.out \
  >/dev/null 2>&1 &
fio=$!
sleep 2
kill -STOP "$pid"
sleep 65
kill -CONT "$pid"
wait $fio || { cat fio.out; exit 1; }
[ -n "$(dmesg | grep 'Connection timed out, retrying')" ]
clients() { luks status vol --json | jq '.clients | length'; }
has_all_clients() { [ "$(clients)" = 4 ]; }
until_true 10 has_all_clients
luks close vol
nothing_left

begin "the stock nbd-client on luks serve"
format image 96M 1024
"$LUKS" serve image --key-file key --socket s >uri &
server=$!
until_true 10 test -s uri
nbd-client -unix s /dev/nbd0 >/dev/null
mkfs.ext4 -q -b 4096 /dev/nbd0
mount /dev/nbd0 mnt
cp -r "$tree/src" mnt/
umount mnt
nbd-client -d /dev/nbd0 >/dev/null
kill $server
wait $server
cryptsetup open image vol --key-file key
e2fsck -fn /dev/mapper/vol
mount -o ro /dev/mapper/vol mnt
diff -r "$tree/src" mnt/src
umount mnt
cryptsetup close vol

for how in nbd fuse none; do
  begin "a killed server by $how, not in use, is cleared by the next command of any name"
  luks open image vol --key-file key --attach $how
  kill -9 "$(luks status vol --json | jq .pid)"
  luks open image other --key-file key --attach none
  is "$(luks status | cut -f1)" other
  is "$(ls /run/luks)" other
  luks close other
  nothing_left
done

begin "what somebody else takes down is closed"
dev=$(luks open image vol --key-file key)
nbd-client -d "$dev" >/dev/null
until_true 10 is_closed; nothing_left
dev=$(luks open image vol --key-file key --attach fuse)
losetup -d "$dev"
until_true 10 is_closed; nothing_left

begin "SIGTERM closes; while in use, when the last user is gone"
dev=$(luks open image vol --key-file key)
kill "$(luks status vol --json | jq .pid)"
until_true 10 is_closed; nothing_left
dev=$(luks open image vol --key-file key)
mount "$dev" mnt
kill "$(luks status vol --json | jq .pid)"
sleep 1
ls mnt >/dev/null
umount mnt
until_true 10 is_closed; nothing_left

begin "the server is set for memory pressure, and hidden"
luks open image vol --key-file key
pid=$(luks status vol --json | jq .pid)
is "$(cat /proc/$pid/oom_score_adj)" -1000
for task in /proc/$pid/task/*; do # PF_MEMALLOC_NOIO, which PR_SET_IO_FLUSHER sets
  [ $(($(cut -d' ' -f9 $task/stat) & 0x80000)) != 0 ]
done
[ "$(awk '/VmLck/ { print $2 }' /proc/$pid/status)" -gt 0 ]
is "$(stat -c %a /run/luks /run/luks/vol /run/luks/vol/{nbd,control}.sock | tr '\n' ' ')" \
  "700 700 600 600 "
luks close vol

begin "an ordinary user gets a file"
chmod 666 /dev/fuse
chmod 755 "$work"
chmod 644 key
format image 96M 512
chown nobody image mnt
user() { setpriv --reuid=nobody --regid=nogroup --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
file=$(user "$LUKS" open image vol --key-file key)
is "$file" "/tmp/luks-$(id -u nobody)/vol/mount/vol"
user mkfs.ext4 -q "$file"
user e2fsck -fn "$file"
ends 5 user sh -c "exec 9<'$file'; '$LUKS' close vol 9<&-"
user "$LUKS" close vol
is "$(user "$LUKS" status)" ""
uri=$(user "$LUKS" open image vol --key-file key --attach none)
is "$(user nbdinfo --size "$uri")" $((80 << 20))
user "$LUKS" close vol
ends 4 user "$LUKS" open image vol --key-file key --attach nbd
is "$(ls /tmp/luks-$(id -u nobody))" ""
cryptsetup open image vol --key-file key
e2fsck -fn /dev/mapper/vol
cryptsetup close vol

echo "all held"
