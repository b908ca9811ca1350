#!/usr/bin/env bash
# Tries the program that users build: copies, sums, sends, interrupts and resumes with the release binary.
#
#     scripts/smoke_test.sh [HAUL]
set -euo pipefail
cd "$(dirname "$0")/.."

haul=$(realpath "${1:-target/release/haul}")
home=$(mktemp -d)
serve=
trap '[ -z "$serve" ] || kill "$serve" 2>/dev/null || true; rm -rf "$home"' EXIT
cd "$home"
export XDG_STATE_HOME="$home/state" LC_ALL=C

"$haul" --version
mkdir -p source/sub
for number in 1 2 3 4; do
    head -c $((number * 7000001)) /dev/urandom > "source/file$number"
done
head -c 1000 /dev/urandom > source/sub/small
ln -s file1 source/link

echo "smoke: copy"
"$haul" cp -a --verify --waybill=w source copy
diff -r --no-dereference source copy
"$haul" verify w

echo "smoke: sum"
(cd source && "$haul" sum -a sha256 file1 file2) > list
(cd copy && sha256sum --check --quiet "$home/list")

echo "smoke: send"
mkdir there
# The whole program is over when its last session is.
"$haul" serve --root there --once --listen 127.0.0.1:0 --address 127.0.0.1 > ticket &
serve=$!
for _ in $(seq 3000); do
    [ -s ticket ] && break
    sleep 0.1
done
chmod 600 ticket
"$haul" send --ticket-file ticket source :
wait "$serve"
serve=
diff -r --no-dereference source there/source

echo "smoke: resume"
# The second write of a log means that something is durable: the kill leaves a job to resume.
status=0
strace -f -qq -o trace -e trace=fdatasync,syncfs -e inject=fdatasync,syncfs:signal=SIGKILL:when=2 \
    "$haul" cp -a --resume --sync=object --split-size=1M source resumed || status=$?
[ "$status" -eq 137 ] || { echo "smoke: the copy ended with status $status before it was killed" >&2; exit 1; }
"$haul" cp -a --resume --sync=object --split-size=1M source resumed
diff -r --no-dereference source resumed
echo "smoke: passed"
