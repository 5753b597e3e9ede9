#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

static int descriptor = -1;
static int64_t stall_limit_ms;

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int output_open(const char *path, int64_t stall_ms)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return 0;
    strcpy(address.sun_path, path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) return 0;
    /* The agent may be slow to accept; a connect to a full backlog waits no longer than this. */
    struct timeval limit = {stall_ms / 1000, stall_ms % 1000 * 1000};
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(made, (struct sockaddr *)&address, sizeof address) != 0) {
        close(made);
        return 0;
    }
    fcntl(made, F_SETFL, fcntl(made, F_GETFL) | O_NONBLOCK);
    stall_limit_ms = stall_ms;
    __atomic_store_n(&descriptor, made, __ATOMIC_RELEASE);
    return 1;
}

int output_alive(void)
{
    return __atomic_load_n(&descriptor, __ATOMIC_ACQUIRE) >= 0;
}

void output_close(void)
{
    int open = __atomic_exchange_n(&descriptor, -1, __ATOMIC_ACQ_REL);
    if (open >= 0) close(open);
}

/* Wait until the socket accepts more; 0 after an error, or if it accepted nothing within the limit. */
static int writable(int64_t last_progress_ms)
{
    for (;;) {
        int64_t left = last_progress_ms + stall_limit_ms - now_ms();
        if (left <= 0) return 0;
        struct pollfd asked = {descriptor, POLLOUT, 0};
        int ready = poll(&asked, 1, (int)left);
        if (ready > 0) return !(asked.revents & (POLLERR | POLLHUP | POLLNVAL));
        if (ready < 0 && errno != EINTR) return 0;
    }
}

static void advance(struct msghdr *message, size_t sent)
{
    while (message->msg_iovlen && sent >= message->msg_iov->iov_len) {
        sent -= message->msg_iov->iov_len;
        message->msg_iov++;
        message->msg_iovlen--;
    }
    if (message->msg_iovlen) {
        message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent;
        message->msg_iov->iov_len -= sent;
    }
}

int output_frame(uint32_t type, uint32_t count, const void *fixed, size_t fixed_bytes, const void *rest,
                 size_t rest_bytes)
{
    struct assay_frame frame = {type, count, fixed_bytes + rest_bytes};
    struct iovec parts[3] = {
        {&frame, sizeof frame}, {(void *)(uintptr_t)fixed, fixed_bytes}, {(void *)(uintptr_t)rest, rest_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    int64_t last_progress_ms = now_ms();
    while (output_alive()) {
        advance(&message, 0);
        if (!message.msg_iovlen) return 1;
        ssize_t sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
        if (sent > 0) {
            advance(&message, (size_t)sent);
            last_progress_ms = now_ms();
        } else if (sent < 0 && errno == EINTR) {
            continue;
        } else if (sent == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || !writable(last_progress_ms)) {
            output_close();
        }
    }
    return 0;
}
