"""Tools as scripts that give recorded answers, for a real GPU that is not there."""

from __future__ import annotations

from pathlib import Path

INPUTS = Path(__file__).parents[2] / "golden" / "inputs"
# It runs the workload (the last two words), leaves a report, and exports a recording made beforehand.
NSYS = """#!/bin/sh
case "$1" in
--version) echo "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0" ;;
profile)
    [ "$2" = --help ] && {{ echo "  --trace=  --sample=  --output="; exit 0; }}
    for word in "$@"; do case "$word" in --output=*) stem="${{word#--output=}}" ;; esac; done
    while [ "$1" != /bin/sh ]; do shift; done
    "$@" || exit $?
    echo report > "$stem.nsys-rep" ;;
export)
    while [ "$1" != -o ]; do shift; done
    cp {recording} "$2" ;;
esac
"""
# It runs the workload, says in its log what ncu says, and prints the launches of a recorded raw page.
NCU = """#!/bin/sh
for word in "$@"; do
    case "$last" in
    -o | --import) report=$word ;;
    --log-file) log=$word ;;
    --launch-count) count=$word ;;
    esac
    last=$word
done
case "$1 $*" in
--version*) echo "Version 2022.3.0.0 (build 31729285)" ;;
--help*) echo "  --metrics arg  --csv  --page arg  --log-file arg" ;;
--list-chips*) echo "gv100" ;;
--query-metrics*) exit 1 ;;
*--import*) read count < "$report"; head -n "$((count + 3))" {page} ;;
*)
    while [ "$1" != /bin/sh ]; do shift; done
    echo "==PROF== Connected to process 77 (/bin/sh)" > "$log"
    "$@" || {{ echo "==ERROR== The application returned an error code ($?)." >> "$log"; exit 1; }}
    for index in $(seq 0 "$((count - 1))"); do echo "==PROF== Profiling \\"k\\" - $index: 0%" >> "$log"; done
    echo "==PROF== Disconnected from process 77" >> "$log"
    echo "$count" > "$report" ;;
esac
"""
