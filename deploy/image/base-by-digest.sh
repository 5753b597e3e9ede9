#!/bin/sh
# Ends the build unless its base is named by a digest, or lies on this machine: sh base-by-digest.sh BASE
# What a tag names can change between two builds, and nothing would say so.
case "$1" in
  *@sha256:*) digest="${1##*@sha256:}"
    if [ "${#digest}" -eq 64 ] && [ -z "$(printf %s "$digest" | tr -d 0-9a-f)" ]; then exit 0; fi ;;
  localhost/*) exit 0 ;;
esac
echo "BASE is '$1', which is not named by a digest. Look at the image, then build with its digest:" >&2
echo "  podman pull ${1%%@*} && podman image inspect --format '{{index .RepoDigests 0}}' ${1%%@*}" >&2
echo "  podman build --build-arg BASE=NAME@sha256:DIGEST ..." >&2
exit 1
