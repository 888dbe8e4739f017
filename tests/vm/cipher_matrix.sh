#!/usr/bin/env bash
# runs: on the host
# Every cipher, key size, mode, IV and sector size that dm-crypt can map: it writes and we read, we
# write and it reads. tests/kernel_matrix/ does it; here it is built, and run in the virtual machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in cargo jq losetup nbdcopy; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
# Optimised: the CPU that it runs on is emulated.
cargo build --quiet --release
test=$(cargo test --quiet --release --test kernel_matrix --no-run --message-format=json |
  jq -r 'select(.executable != null and .target.name == "kernel_matrix").executable')
[ -x "$test" ]
# The machine has a /tmp of its own.
case $test in /tmp/*) echo "the target folder is under /tmp, where the virtual machine doesn't see it"; exit 1 ;; esac

# Some modules Debian doesn't build. Where they can't be had, the rest is compared.
modules=$(tools/vm-crypto-modules) || modules=

VM_OUT=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
export VM_OUT
trap 'rm -rf "$VM_OUT"' EXIT
[ -z "$modules" ] || cp -r "$modules" "$VM_OUT/modules"
tools/vm-run -t 1500 -- env TEST="$test" bash -c '
  set -euo pipefail
  # All that Debian builds; other kernels may lack some.
  for module in loop dm-crypt crypto_null xts lrw pcbc cts essiv authenc adiantum hctr2 xctr \
    chacha_generic arc4 ccm gcm seqiv cfb ofb \
    aes_generic aesni-intel aes_ti serpent_generic serpent-avx2 twofish_generic twofish-avx-x86_64 \
    camellia_generic camellia-aesni-avx2 cast5_generic cast5-avx-x86_64 cast6_generic \
    cast6-avx-x86_64 blowfish_generic blowfish-x86_64 des_generic des3_ede-x86_64 sm4_generic \
    aria_generic anubis khazad seed tea fcrypt \
    md4 rmd160 wp512 sha3_generic blake2b_generic sm3_generic streebog_generic crc32c_generic \
    xxhash_generic crc32_generic chacha-x86_64 nhpoly1305-avx2 poly1305_generic; do
    modprobe "$module" 2>/dev/null || absent="${absent-} $module"
  done
  echo "kernel $(uname -r), without:${absent-}"
  if [ -d "$VM_OUT/modules" ]; then
    while read -r module; do insmod "$VM_OUT/modules/$module.ko"; done <"$VM_OUT/modules/order"
    echo "and with, built from its source: $(xargs <"$VM_OUT/modules/order")"
  fi
  # Asked for what it lacks, the kernel would start a program each time.
  echo >/proc/sys/kernel/modprobe
  "$TEST" --nocapture --test-threads 1 >"$VM_OUT/log" 2>&1 || { cat "$VM_OUT/log"; exit 1; }
  cat "$VM_OUT/log"'

# What the documents promise isn't more than what was seen just now.
seen=$(sed -n 's/^verified: \([0-9]*\) combinations.*/\1/p' "$VM_OUT/log")
told=$(sed -n 's/.*\*\*\([0-9]*\) combinations\*\*.*/\1/p' docs/ciphers.md)
[ "$seen" -ge "$told" ] || { echo "docs/ciphers.md tells of $told combinations, not $seen"; exit 1; }
