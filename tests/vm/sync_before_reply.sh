#!/usr/bin/env bash
# runs: on the host
# The sync comes before the reply: seen in the server's system calls, for FLUSH and for FUA.
set -euo pipefail
cd "$(dirname "$0")/../.."
LUKS=${LUKS:-target/debug/luks}
for tool in strace qemu-io cryptsetup; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
server=
trap 'kill -9 $server 2>/dev/null || true; rm -rf "$work"' EXIT
printf 'sync' >"$work/key"
truncate -s 24M "$work/v.img"
cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
  "$work/v.img" "$work/key"
strace -f -ttt -o "$work/trace" -e trace=pwrite64,pwritev,pwritev2,fdatasync,fsync,sendmsg,sendto,writev,io_uring_enter \
  "$LUKS" serve "$work/v.img" --key-file "$work/key" --socket "$work/s" >"$work/ready" & server=$!
for _ in $(seq 100); do grep -qs nbd "$work/ready" && break; sleep 0.05; done
# A write and a flush; then a write with FUA.
qemu-io -f raw "nbd+unix:///?socket=$work/s" -c 'write -P 1 0 64k' -c 'flush' >/dev/null
qemu-io -f raw "nbd+unix:///?socket=$work/s" -c 'write -f -P 2 64k 64k' >/dev/null
kill -TERM $(pgrep -P $server) 2>/dev/null || kill -TERM $server
wait $server || true
python3 - "$work/trace" <<'P'
import re, sys
calls = []          # (end time, name, arguments), unfinished calls joined
begun = {}
for line in open(sys.argv[1]):
    m = re.match(r'(\d+) +([\d.]+) (.*)', line)
    if not m: continue
    pid, when, text = m[1], float(m[2]), m[3]
    if '<unfinished' in text:
        begun[pid] = (when, text.split(' <unfinished')[0]); continue
    r = re.match(r'<\.\.\. \w+ resumed>(.*)', text)
    start = when
    if r and pid in begun: start, text = begun[pid][0], begun.pop(pid)[1] + r[1]
    elif r: continue
    m = re.match(r'(\w+)\(', text)
    if m: calls.append((start, when, m[1], text))
# A reply is 16 bytes (simple) or begins with a structured chunk's magic; what matters is its order.
sends = [(start, text) for start, end, name, text in calls if name in ('sendmsg', 'sendto', 'writev')]
syncs = [(end, text) for start, end, name, text in calls if name in ('fdatasync', 'fsync') and text.rstrip().endswith('= 0')]
durable = [(end, text) for start, end, name, text in calls if 'RWF_DSYNC' in text]
writes = [(end, text) for start, end, name, text in calls if name.startswith('pwrite')]
assert syncs and durable and writes, (len(syncs), len(durable), len(writes))
# The flush: after its sync ended, and before the client's next connection, one reply was sent.
first_write, first_sync = writes[0][0], syncs[0][0]
between = [s for s in sends if first_write <= s[0] < first_sync]
assert len(between) <= 1, between      # the write's own reply, at most
assert any(s[0] >= first_sync for s in sends)
# FUA: no reply left between the durable write's start and its end.
start = [c[0] for c in calls if 'RWF_DSYNC' in c[3]][0]
end = durable[0][0]
assert not [s for s in sends if start < s[0] < end], 'a reply left before the data were durable'
print('the sync ends before the reply leaves, for FLUSH and for FUA')
P
