#!/bin/sh
# Every .keras and .h5 file below FOLDER, converted into OUT:  sh convert_all.sh FOLDER OUT
set -u
folder=$1 out=$2

# The simplest way, where there are few: a loop. Each turn starts Python and PyTorch anew, and one target is written
# after the other; the failures are counted by hand.
mkdir -p "$out/loop"
failed=0
for source in "$folder"/*.keras "$folder"/*.h5; do
    [ -e "$source" ] || continue
    name=$(basename "$source")
    mha-convert convert "$source" "$out/loop/$name.safetensors" >/dev/null || failed=$((failed + 1))
done
echo "$failed failed"

# One line does the same for any number, on all cores, in the folder's tree, with a report, and can go on after a break.
mha-convert batch "$folder" --out "$out/batch" --keep-suffix --resume
