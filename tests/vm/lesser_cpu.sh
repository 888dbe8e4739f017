#!/usr/bin/env bash
# The same command on CPUs that have less: without AES, without AVX, without VAES. Emulated, so an
# instruction that the model lacks ends the process.
# runs: on the host
set -euo pipefail
luks=${LUKS:?the command to test}
if ! command -v qemu-x86_64 >/dev/null || [ "$(uname -m)" != x86_64 ]; then
  echo "skipped: needs qemu-x86_64 (Debian package qemu-user) on x86-64"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
head -c 65536 /dev/urandom >"$folder/sealed"
head -c 64 /dev/urandom >"$folder/key"

# The hash of what a plain volume decrypts to: cipher, key bits, then what runs the command.
payload() {
  local cipher=$1 bits=$2
  shift 2
  head -c $((bits / 8)) "$folder/key" >"$folder/short"
  "$@" "$luks" serve "$folder/sealed" --type plain --cipher "$cipher" --key-size "$bits" \
    --key-file "$folder/short" \
    --run "nbdcopy \"\$uri\" - | sha256sum"
}

for model in Nehalem:soft Haswell,-avx,-avx2:crate Haswell:aesni; do
  emulated=(qemu-x86_64 -cpu "${model%:*}")
  engine=${model##*:}
  says="AES by $engine"
  "${emulated[@]}" "$luks" engines >"$folder/engines"
  if ! grep -q "$says" "$folder/engines"; then
    cat "$folder/engines"
    echo "FAILED: $model should say: $says"
    exit 1
  fi
  for spec in aes-xts-plain64:512 aes-cbc-essiv:sha256:256 aes-cbc-plain64:192 aes-ctr-plain64:256 \
    aes-lrw-benbi:384 aes-hctr2-plain64:256 xchacha12,aes-adiantum-plain64:256 \
    serpent-xts-plain64:512 twofish-xts-plain64:512 camellia-xts-plain64:512; do
    cipher=${spec%:*} bits=${spec##*:}
    here=$(payload "$cipher" "$bits" env)
    there=$(payload "$cipher" "$bits" "${emulated[@]}")
    if [ -z "$here" ] || [ "$here" != "$there" ]; then
      echo "FAILED: $model $cipher: $here here, $there there"
      exit 1
    fi
    echo "$model $cipher: the same"
  done
done
