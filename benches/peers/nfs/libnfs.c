/*
 * Calls to an NFS server by libnfs's raw asynchronous interface, a fixed number in flight, on one thread: a peer of
 * `brunt-bench nfs`, which compiles it.
 *
 *   libnfs HOST PORT MOUNT_PORT EXPORT FILE SIZE DEPTH SECONDS
 *
 * SIZE 0 asks for GETATTR, other sizes for READ at random multiples of SIZE within 1 GiB. Prints the number
 * of calls, the seconds that they took, and the CPU seconds.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

static struct rpc_context *rpc;
static char handle[64];
static struct nfs_fh3 object = {{0, handle}};
static uint64_t size, state = 1;
static unsigned long outstanding, completed;
static int is_running = 1, is_answered;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, rpc_get_error(rpc));
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* One round of the event loop. */
static void turn(void) {
    struct pollfd polled = {rpc_get_fd(rpc), rpc_which_events(rpc), 0};
    if (poll(&polled, 1, 1000) < 0 || rpc_service(rpc, polled.revents) < 0)
        fail("the connection failed");
}

static void keep(u_int len, const char *bytes) {
    if (len > sizeof handle)
        fail("a long handle");
    memcpy(handle, bytes, len);
    object.data.data_len = len;
    is_answered = 1;
}

static void connected(struct rpc_context *of, int status, void *data, void *context) {
    (void)of, (void)data, (void)context;
    if (status != RPC_STATUS_SUCCESS)
        fail("connecting");
    is_answered = 1;
}

static void mounted(struct rpc_context *of, int status, void *data, void *context) {
    mountres3 *results = data;
    (void)of, (void)context;
    if (status != RPC_STATUS_SUCCESS || results->fhs_status != MNT3_OK)
        fail("MNT");
    keep(results->mountres3_u.mountinfo.fhandle.fhandle3_len,
         results->mountres3_u.mountinfo.fhandle.fhandle3_val);
}

static void found(struct rpc_context *of, int status, void *data, void *context) {
    LOOKUP3res *results = data;
    (void)of, (void)context;
    if (status != RPC_STATUS_SUCCESS || results->status != NFS3_OK)
        fail("LOOKUP");
    keep(results->LOOKUP3res_u.resok.object.data.data_len,
         results->LOOKUP3res_u.resok.object.data.data_val);
}

static void call(void);

static void answered(struct rpc_context *of, int status, void *data, void *context) {
    (void)of, (void)context;
    if (status != RPC_STATUS_SUCCESS)
        fail("a call");
    if (size == 0) {
        if (((GETATTR3res *)data)->status != NFS3_OK)
            fail("GETATTR");
    } else {
        READ3res *results = data;
        if (results->status != NFS3_OK || results->READ3res_u.resok.data.data_len != size)
            fail("READ");
    }
    outstanding--;
    completed++;
    if (is_running)
        call();
}

static void call(void) {
    int refused;
    if (size == 0) {
        struct GETATTR3args args = {object};
        refused = rpc_nfs3_getattr_async(rpc, answered, &args, NULL);
    } else {
        /* xorshift64 */
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        struct READ3args args = {object, state % ((1ull << 30) / size) * size, size};
        refused = rpc_nfs3_read_async(rpc, answered, &args, NULL);
    }
    if (refused)
        fail("queueing a call");
    outstanding++;
}

static void wait_for_answer(int refused, const char *what) {
    if (refused)
        fail(what);
    double until = seconds(CLOCK_MONOTONIC) + 30;
    while (!is_answered) {
        if (seconds(CLOCK_MONOTONIC) > until)
            fail("no answer");
        turn();
    }
    is_answered = 0;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "libnfs HOST PORT MOUNT_PORT EXPORT FILE SIZE DEPTH SECONDS\n");
        return 2;
    }
    size = strtoull(argv[6], NULL, 10);
    unsigned long depth = strtoul(argv[7], NULL, 10);
    double length = strtod(argv[8], NULL);
    rpc = rpc_init_context();
    wait_for_answer(rpc_connect_async(rpc, argv[1], atoi(argv[3]), connected, NULL), "connecting");
    wait_for_answer(rpc_mount3_mnt_async(rpc, mounted, argv[4], NULL), "MNT");
    rpc_destroy_context(rpc);
    rpc = rpc_init_context();
    wait_for_answer(rpc_connect_async(rpc, argv[1], atoi(argv[2]), connected, NULL), "connecting");
    char dir[64];
    memcpy(dir, handle, sizeof dir);
    struct LOOKUP3args what = {{{{object.data.data_len, dir}}, argv[5]}};
    wait_for_answer(rpc_nfs3_lookup_async(rpc, found, &what, NULL), "LOOKUP");
    double begin = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), elapsed = 0;
    while (outstanding < depth)
        call();
    while (outstanding > 0) {
        turn();
        elapsed = seconds(CLOCK_MONOTONIC) - begin;
        is_running = elapsed < length;
    }
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%lu %.9f %.9f\n", completed, elapsed, cpu);
    rpc_destroy_context(rpc);
    return 0;
}
