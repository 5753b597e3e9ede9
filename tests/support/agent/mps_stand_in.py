"""A stand-in for MPS without a GPU: the control program with its daemon, and a driver library for clients.

The control program answers as NVIDIA's own does (tests/agent/test_mps_real_tools.py): exit status 0 for
unknown commands and for shares out of range, a socket ``control`` in the pipe folder, a log on standard
output with ``-f``. What cannot be seen without a GPU, clients, follows the manual: a client that finds the
daemon gets the SMs of its share, rounded down to pairs, and one that finds none gets all, without a word.

``ASSAY_TEST_MPS`` holds faults, separated by commas:
    silent          the daemon never answers
    dies            the daemon ends at its start, as one that finds another in its folder
    keeps_share     the daemon takes no share
    not_in_force    the daemon takes the share, and its clients get all SMs
    half_again      its clients get half more than their share
    half_lost       its clients get half of their share
    quarter_left    its clients get a quarter of it
    old             a control program from before CUDA 13: no version, no static mode
    no_partitions   in static mode, the daemon makes no partition
    unlisted        it does not list the partitions that it made
    wordy           it answers with a sentence, as some releases do
    lost_partition  its clients get no SMs in their partition
    never_quits     quit without a limit does not end it; with one it does
    stubborn        neither works, and SIGTERM is ignored
    no_log          the daemon does not log its clients

The file that ``ASSAY_TEST_MPS_TOLD`` names gets a line for each command that it is told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALL_SMS = 80
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
_CONTROL = r"""#!@PYTHON@ -IS
import fcntl, os, select, signal, socket, subprocess, sys, time

PIPE, LOG = os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
FAULTS = set(os.environ.get("ASSAY_TEST_MPS", "").split(","))
STATIC, ALL_SMS, UUID = "-S" in sys.argv, @ALL_SMS@, "@UUID@"
CHUNK_SMS = 8


def main():
    if sys.argv[1:] in (["-f"], ["-d"], ["-f", "-S"], ["-d", "-S"]) and not (STATIC and "old" in FAULTS):
        return daemon(sys.argv[1] == "-d")
    if sys.argv[1:] == ["-v"] and "old" not in FAULTS:
        print("Binary version: 13010")
        return 0
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(PIPE + "/control")
    except OSError:
        print("Cannot find MPS control daemon process")
        return 1
    channel.sendall(b"UI " + sys.stdin.buffer.read())
    channel.shutdown(socket.SHUT_WR)
    answer = b""
    while data := channel.recv(4096):
        answer += data
    sys.stdout.write(answer.decode())
    return 0


def daemon(background):
    lock = open(PIPE + "/control_lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("An instance of this daemon is already running")
        return 1
    if "dies" in FAULTS:
        print("An instance of this daemon is already running")
        return 1
    if background and os.fork():
        return 0
    if background:
        os.setsid()
        sys.stdout = open(LOG + "/control.log", "a")
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
    if "stubborn" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    listeners = []
    for name in ("control", "control_privileged"):
        path = PIPE + "/" + name
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(64)
        listeners.append(listener)
    open(PIPE + "/nvidia-cuda-mps-control.pid", "w").write(str(os.getpid()))
    say("Starting control daemon using socket " + PIPE + "/control")
    Daemon(listeners).run()
    os.unlink(PIPE + "/nvidia-cuda-mps-control.pid")
    say("Exit with status 0")
    return 0


def say(text):
    print("[Control %5d] %s" % (os.getpid(), text), flush=True)


class Daemon:
    def __init__(self, listeners):
        self.listeners, self.share, self.clients, self.server, self.over = listeners, 100.0, {}, None, False
        self.partitions = {}

    def run(self):
        while not self.over:
            ready = select.select([*self.listeners, *self.clients], [], [], 0.5)[0]
            for channel in ready:
                if channel in self.listeners:
                    self.accept(channel.accept()[0])
                elif not channel.recv(1):
                    say("Client %s disconnected" % self.clients.pop(channel))
        if self.server:
            self.server.kill()
            self.server.wait()

    def accept(self, channel):
        if "silent" in FAULTS:
            time.sleep(3600)
        say("Accepting connection...")
        text = channel.recv(4096).decode()
        if text.startswith("CLIENT "):
            return self.client(channel, *text.split()[1:])
        say("NEW UI")
        for command in text[3:].splitlines():
            say("Cmd:" + command)
            if "ASSAY_TEST_MPS_TOLD" in os.environ:
                open(os.environ["ASSAY_TEST_MPS_TOLD"], "a").write(command + "\n")
            channel.sendall(self.answer(command.split()).encode())
        channel.close()
        say("UI closed")

    def client(self, channel, process, partition=""):
        if "no_log" not in FAULTS:
            say("NEW CLIENT %s from user %d: Server already exists" % (process, os.getuid()))
        if self.server is None:
            self.server = subprocess.Popen(["sleep", "3600"], close_fds=True)
            say("Starting new server %d for user %d" % (self.server.pid, os.getuid()))
        share = 100.0 if "not_in_force" in FAULTS else self.share
        share = 1.5 * share if "half_again" in FAULTS else share
        share = 0.5 * share if "half_lost" in FAULTS else share
        share = 0.25 * share if "quarter_left" in FAULTS else share
        if STATIC:
            sms = CHUNK_SMS * self.partitions.get(partition, 0)
            sms = 0 if "lost_partition" in FAULTS else sms // 2 if "half_lost" in FAULTS else sms
            share = 100.0 * sms / ALL_SMS
        channel.sendall(b"%.3f\n" % share)
        self.clients[channel] = process

    def answer(self, words):
        if words[0] == "set_default_active_thread_percentage":
            if 0 < float(words[1]) <= 100 and "keeps_share" not in FAULTS:
                self.share = float(words[1])
            elif not 0 < float(words[1]) <= 100:
                say("Invalid percentage, expected between (0.0, 100.0]")
            return "%.1f\n" % self.share
        if words[0] == "get_default_active_thread_percentage":
            return "%.1f\n" % self.share
        if words[0] == "get_server_list":
            return "%d\n" % self.server.pid if self.server else ""
        if words[0] == "get_client_list":
            if not self.server or words[1] != str(self.server.pid):
                return "Server %s not found\n" % words[1]
            return "".join(process + "\n" for process in self.clients.values())
        if words[0] == "terminate_client":
            for channel, process in list(self.clients.items()):
                if process == words[2]:
                    say("Terminating client " + process)
                    channel.close()
                    del self.clients[channel]
            return ""
        if words[0] in ("sm_partition", "lspart") and STATIC:
            return self.partitioned(words)
        if words[0] == "quit":
            forced = len(words) > 1
            while "stubborn" in FAULTS:
                time.sleep(0.05)
            self.over = forced or "never_quits" not in FAULTS
            return ""
        return 'Unknown command "%s"\n' % words[0]

    def partitioned(self, words):
        total, used = ALL_SMS // CHUNK_SMS, sum(self.partitions.values())
        if words[0] == "lspart":
            gpu = UUID[:12]
            rows = ["GPU Partition free used free used clients", "chunk chunk SM SM"]
            sms = CHUNK_SMS * used
            rows.append("%s - %d %d %d %d -" % (gpu, total - used, used, ALL_SMS - sms, sms))
            for name, chunks in self.partitions.items():
                rows.append("%s %s - %d - %d No" % (gpu, name.split("/")[1], chunks, CHUNK_SMS * chunks))
            return "\n".join(rows[: 3 if "unlisted" in FAULTS else None]) + "\n"
        _, action, uuid, chunks = words
        if uuid != UUID or used + int(chunks) > total or "no_partitions" in FAULTS:
            error = "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
            return "Failed to fulfill the requested SM partition of %s chunks, error %s\n" % (chunks, error)
        name = "%s/Dx%dAAAA" % (uuid, len(self.partitions))
        self.partitions[name] = int(chunks)
        return "Partition %s created\n" % name if "wordy" in FAULTS else name + "\n"


sys.exit(main())
"""
_DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int sms = ALL_SMS;

int cuInit(unsigned flags) {
    const char *fault = getenv("ASSAY_TEST_CUDA"), *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *partition;
    char text[256] = "";
    int channel;
    (void)flags;
    if (fault != NULL && strcmp(fault, "no_device") == 0) return 100;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipe ? pipe : "/tmp/nvidia-mps");
    channel = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(channel, (struct sockaddr *)&address, sizeof address) != 0) return 0;
    partition = getenv("CUDA_MPS_SM_PARTITION");
    snprintf(text, sizeof text, "CLIENT %d %s\n", (int)getpid(), partition ? partition : "");
    if (write(channel, text, strlen(text)) < 0) return 807;
    memset(text, 0, sizeof text);
    if (read(channel, text, sizeof text - 1) <= 0) return 807;
    if (atof(text) == 0.0) return 915; /* static mode, and no partition */
    sms = (int)(ALL_SMS / 2 * atof(text) / 100.0 + 1e-9) * 2;
    if (sms < 2) sms = 2;
    return 0;
}

int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &sms; return 0; }
int cuCtxSetCurrent(void *context) { return context == &sms ? 0 : 201; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute != 16) return 1;
    *value = sms;
    return 0;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *fault = getenv("ASSAY_TEST_CUDA");
    (void)device;
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x11 * i);
    if (fault != NULL && strcmp(fault, "other_gpu") == 0) uuid[0] = 0xff;
    return 0;
}
"""


def control_program(folder: Path) -> Path:
    """Write the control program into a folder that is to be in a PATH."""
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(
        _CONTROL.replace("@PYTHON@", sys.executable)
        .replace("@UUID@", UUID)
        .replace("@ALL_SMS@", str(ALL_SMS))
    )
    path.chmod(0o755)
    return path


def driver_library(folder: Path) -> Path:
    """Build the driver's library into a folder; the test is skipped where there is no C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler builds the stand-in for the driver's library")
    source = folder / "cuda.c"
    source.write_text(_DRIVER.replace("ALL_SMS", str(ALL_SMS)))
    path = folder / "libcuda.so.1"
    options = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run([*compiler.split(), *options], check=True)
    return path
