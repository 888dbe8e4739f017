# What the scripts here share. They run as root in a virtual machine that may be thrown away, with
# the modules nbd and dm-crypt, and with cryptsetup, e2fsprogs, fio, jq and fuse3. LUKS names the
# command under test.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
: "${LUKS:=$tree/target/debug/luks}"
[ -x "$LUKS" ] || { echo "no command to test: $LUKS"; exit 1; }
work=$(mktemp -d)
cd "$work"
mkdir mnt
printf 'a passphrase' >key
step=start
trap 'rc=$?; [ $rc = 0 ] || { echo "FAILED in: $step (line $LINENO)"; "$LUKS" status || true; dmesg | tail -15; }' EXIT

luks() { "$LUKS" "$@"; }
begin() { step=$*; echo "== $step"; }
is() { [ "$1" = "$2" ] || { echo "  got '$1' instead of '$2'"; return 1; }; }
# Runs a command that must end with this code.
ends() { local want=$1 got=0; shift; "$@" || got=$?; is "$got" "$want"; }
format() { # FILE SIZE SECTOR
  rm -f "$1"
  [ -b "$1" ] || truncate -s "$2" "$1"
  cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
    --sector-size "$3" "$1" key
}
sysfs() { cat "/sys/block/$(basename "$1")/$2"; }
until_true() { # SECONDS COMMAND...
  local n=$(($1 * 10)); shift
  while ! "$@"; do n=$((n - 1)); [ "$n" -gt 0 ] || return 1; sleep 0.1; done
}
is_closed() { [ -z "$(luks status)" ]; }
nothing_left() {
  is "$(luks status)" ""
  is "$(ls /run/luks)" ""
  ! grep -q fuse.luks /proc/mounts
  ! ls /sys/block/nbd*/pid /sys/block/loop*/loop/backing_file 2>/dev/null | grep .
}
