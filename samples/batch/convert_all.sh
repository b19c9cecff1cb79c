#!/bin/sh
# Every .keras and .h5 file below FOLDER, converted into OUT:  sh convert_all.sh FOLDER OUT
set -u
folder=$1 out=$2

# A loop is the simplest way if there are few models. It starts Python and PyTorch for each of them, writes one target
# after another, and has to count the failures itself.
mkdir -p "$out/loop"
failed=0
for source in "$folder"/*.keras "$folder"/*.h5; do
    [ -e "$source" ] || continue
    name=$(basename "$source")
    mha-convert convert "$source" "$out/loop/$name.safetensors" >/dev/null || failed=$((failed + 1))
done
echo "$failed failed"

# This line does the same for any number of models: on all cores, for the whole tree, with a report, and resumable.
mha-convert batch "$folder" --out "$out/batch" --keep-suffix --resume
