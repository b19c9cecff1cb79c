#!/bin/sh
# Converts models in a bucket of any S3-compatible store into a bucket:  sh from_bucket.sh s3://models s3://converted
#
# The store and the credentials come from the environment, as everywhere:
#   AWS_ENDPOINT_URL=http://127.0.0.1:9000   a store of your own; without it, AWS
#   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
set -eu
models=$1 converted=$2

# Globs are matched in the bucket; with --resume, only what has changed there since the last run is converted again.
mha-convert batch "$models/**/*.keras" "$models/**/*.h5" --out "$converted" --keep-suffix --resume

# The report is an object in the same place as the targets.
mha-convert report "$converted/report.jsonl"
