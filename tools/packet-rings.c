// What does it cost a bridge to forward a frame, with recvmsg(2) and with packet rings (packet(7))? Source of the table in
// docs/bridge.md. Run it as root, on a machine with `ip`:
//
//     cc -O2 -o packet-rings tools/packet-rings.c -lpthread && unshare -n ./packet-rings 64 6 && unshare -n ./packet-rings 1500 6
//
// A thread sends frames of this size into one veth pair; the main thread forwards them to another one, in each way for 0.8 s,
// for this many rounds. Prints a line for each: way, bytes, frames per second, and nanoseconds of CPU time per frame, of the
// forwarding thread and of the sending thread (which runs the kernel's receive path, including the copy into a ring).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, VNET = 10, LONGEST = 69000, SLOT = 69632, SLOTS = 960, BLOCK = 1 << 18, BLOCKS = 64,
       SMALL = 2048 };

static const double SECONDS = 0.8, RATE = 2e6;
static int frame_bytes;
static size_t small_bytes;
static volatile int stop;
static uint64_t sent;
static double sender_cpu;

static double clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static double cpu(void) { return clock_of(CLOCK_THREAD_CPUTIME_ID); }
static double now(void) { return clock_of(CLOCK_MONOTONIC) / 1e9; }
static void must(int ok, const char *what) { if (!ok) { perror(what); exit(1); } }
static void set(int s, int option, int value) { must(!setsockopt(s, SOL_PACKET, option, &value, sizeof value), "setsockopt"); }

static int open_socket(void) {
    int s = socket(AF_PACKET, SOCK_RAW, 0), bytes = 64 << 20;
    must(s >= 0, "socket (root?)");
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    set(s, PACKET_IGNORE_OUTGOING, 1);
    return s;
}
static void bind_to(int s, const char *interface, int protocol) {
    struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = if_nametoindex(interface) };
    must(!bind(s, (struct sockaddr *)&at, sizeof at), interface);
}
static int open_out(int vnet) {
    int s = open_socket();
    if (vnet) set(s, PACKET_VNET_HDR, 1);
    bind_to(s, "out0", 0);
    return s;
}
static void wait_for(int s) {
    struct pollfd p = { s, POLLIN, 0 };
    poll(&p, 1, 10);
}
// Sends these messages; returns how many were sent.
static int send_all(int s, struct mmsghdr *m, int count) {
    int done = 0, n;
    while (done < count && (n = sendmmsg(s, m + done, count - done, 0)) > 0) done += n;
    return done;
}
static void lay(struct mmsghdr *m, struct iovec *v) {
    memset(m, 0, BATCH * sizeof *m);
    for (int i = 0; i < BATCH; i++) m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
}

static void *send_frames(void *unused) {
    (void)unused;
    static char frame[2048] = "\2\0\0\0\0\2\2\0\0\0\0\1\x88\xb5";
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    int s = open_socket();
    set(s, PACKET_QDISC_BYPASS, 1);
    bind_to(s, "a0", 0);
    lay(m, v);
    for (int i = 0; i < BATCH; i++) v[i] = (struct iovec){ frame, frame_bytes };
    double before = cpu(), begin = now();
    while (!stop) {
        if (sent >= (now() - begin) * RATE) usleep(20);
        else sent += send_all(s, m, BATCH / 2);
    }
    sender_cpu = cpu() - before;
    close(s);
    return NULL;
}

// Like `brunt bridge`: recvmsg and writev for each frame, with timestamp and VLAN tag.
static uint64_t by_recvmsg(double end) {
    static char frame[LONGEST];
    char header[VNET];
    uint64_t control[16], frames = 0;
    int in = open_socket(), out = open_out(1), one = 1;
    set(in, PACKET_VNET_HDR, 1);
    set(in, PACKET_AUXDATA, 1);
    setsockopt(in, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    bind_to(in, "in0", ETH_P_ALL);
    while (now() < end) {
        int count = 0;
        for (; count < BATCH; count++) {
            struct iovec v[2] = { { header, VNET }, { frame, LONGEST } };
            struct msghdr m = { .msg_iov = v, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control };
            ssize_t n = recvmsg(in, &m, MSG_DONTWAIT);
            if (n < VNET) break;
            v[1].iov_len = n - VNET;
            frames += writev(out, v, 2) > 0;
        }
        if (!count) wait_for(in);
    }
    close(in); close(out);
    return frames;
}

// The same in batches.
static uint64_t by_recvmmsg(double end) {
    static char frame[BATCH][2100];
    static uint64_t control[BATCH][16];
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    uint64_t frames = 0;
    int in = open_socket(), out = open_out(1), one = 1;
    set(in, PACKET_VNET_HDR, 1);
    set(in, PACKET_AUXDATA, 1);
    setsockopt(in, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    bind_to(in, "in0", ETH_P_ALL);
    while (now() < end) {
        lay(m, v);
        for (int i = 0; i < BATCH; i++) {
            v[i] = (struct iovec){ frame[i], sizeof frame[i] };
            m[i].msg_hdr.msg_control = control[i];
            m[i].msg_hdr.msg_controllen = sizeof control[i];
        }
        int n = recvmmsg(in, m, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++) {
            v[i].iov_len = m[i].msg_len;
            m[i].msg_hdr.msg_control = NULL;
            m[i].msg_hdr.msg_controllen = 0;
        }
        if (n > 0) frames += send_all(out, m, n);
        else wait_for(in);
    }
    close(in); close(out);
    return frames;
}

// A ring of blocks (TPACKET_V3), sent without copying. A block is handed over when it is full, or after a millisecond.
static uint64_t by_blocks(double end) {
    struct tpacket_req3 ring = { .tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = 2048,
                                 .tp_frame_nr = BLOCK / 2048 * BLOCKS, .tp_retire_blk_tov = 1 };
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    uint64_t frames = 0;
    int in = open_socket(), out = open_out(0), at = 0;
    set(in, PACKET_VERSION, TPACKET_V3);
    must(!setsockopt(in, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring), "ring");
    char *map = mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
    must(map != MAP_FAILED, "mmap");
    bind_to(in, "in0", ETH_P_ALL);
    lay(m, v);
    while (now() < end) {
        struct tpacket_block_desc *block = (void *)(map + (size_t)at * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            wait_for(in);
            continue;
        }
        int count = block->hdr.bh1.num_pkts, held = 0;
        struct tpacket3_hdr *frame = (void *)((char *)block + block->hdr.bh1.offset_to_first_pkt);
        for (int i = 0; i < count; i++) {
            v[held++] = (struct iovec){ (char *)frame + frame->tp_mac, frame->tp_snaplen };
            frame = (void *)((char *)frame + frame->tp_next_offset);
            if (held == BATCH || i == count - 1) {
                frames += send_all(out, m, held);
                held = 0;
            }
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        at = (at + 1) % BLOCKS;
    }
    munmap(map, (size_t)BLOCK * BLOCKS); close(in); close(out);
    return frames;
}

// A ring of slots (TPACKET_V2), each long enough for a train of segments; handed over at once, copied, and sent one by one or
// in batches.
static uint64_t by_slots(double end, int batch) {
    static char copy[BATCH][LONGEST];
    struct tpacket_req ring = { .tp_block_size = SLOT, .tp_block_nr = SLOTS, .tp_frame_size = SLOT, .tp_frame_nr = SLOTS };
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    uint64_t frames = 0;
    int in = open_socket(), out = open_out(1), at = 0;
    set(in, PACKET_VERSION, TPACKET_V2);
    set(in, PACKET_VNET_HDR, 1);
    must(!setsockopt(in, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring), "ring");
    char *map = mmap(NULL, (size_t)SLOT * SLOTS, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
    must(map != MAP_FAILED, "mmap");
    bind_to(in, "in0", ETH_P_ALL);
    lay(m, v);
    while (now() < end) {
        int count = 0;
        for (; count < BATCH; count++) {
            struct tpacket2_hdr *slot = (void *)(map + (size_t)at * SLOT);
            if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) break;
            v[count] = (struct iovec){ copy[batch ? count : 0], slot->tp_snaplen + VNET };
            memcpy(v[count].iov_base, (char *)slot + slot->tp_mac - VNET, v[count].iov_len);
            __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
            at = (at + 1) % SLOTS;
            if (!batch) frames += writev(out, &v[count], 1) > 0;
        }
        if (!count) wait_for(in);
        else if (batch) frames += send_all(out, m, count);
    }
    munmap(map, (size_t)SLOT * SLOTS); close(in); close(out);
    return frames;
}
// A ring of small slots (TPACKET_V2): longer frames stay complete in the socket's queue (PACKET_COPY_THRESH; none here). Frames
// are sent without copying, in batches, with their virtio-net headers or, as a second socket could, without.
static uint64_t by_small_slots(double end, int vnet) {
    struct tpacket_req ring = { .tp_block_size = BLOCK, .tp_block_nr = small_bytes / BLOCK, .tp_frame_size = SMALL,
                                .tp_frame_nr = small_bytes / SMALL };
    struct mmsghdr m[BATCH];
    struct iovec v[2 * BATCH];
    uint64_t frames = 0;
    int in = open_socket(), out = open_out(vnet), one = 1;
    size_t at = 0, slots = small_bytes / SMALL;
    set(in, PACKET_VERSION, TPACKET_V2);
    set(in, PACKET_VNET_HDR, 1);
    set(in, PACKET_COPY_THRESH, 1);
    setsockopt(in, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    must(!setsockopt(in, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring), "ring");
    char *map = mmap(NULL, small_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, in, 0);
    must(map != MAP_FAILED, "mmap");
    bind_to(in, "in0", ETH_P_ALL);
    memset(m, 0, sizeof m);
    for (int i = 0; i < BATCH; i++) m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[2 * i], .msg_iovlen = 1 + vnet };
    while (now() < end) {
        int count = 0;
        for (; count < BATCH; count++) {
            struct tpacket2_hdr *slot = (void *)(map + (at + count) % slots * SMALL);
            if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) break;
            char *frame = (char *)slot + slot->tp_mac;
            if (vnet) v[2 * count] = (struct iovec){ frame - VNET, VNET };
            v[2 * count + vnet] = (struct iovec){ frame, slot->tp_snaplen };
        }
        if (!count) { wait_for(in); continue; }
        frames += send_all(out, m, count);
        for (int i = 0; i < count; i++, at++)
            __atomic_store_n(&((struct tpacket2_hdr *)(map + at % slots * SMALL))->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    }
    munmap(map, small_bytes); close(in); close(out);
    return frames;
}
static uint64_t by_small(double end) { small_bytes = 64 << 20; return by_small_slots(end, 1); }
static uint64_t by_small_short(double end) { small_bytes = 8 << 20; return by_small_slots(end, 1); }
static uint64_t by_small_plain(double end) { small_bytes = 64 << 20; return by_small_slots(end, 0); }
static uint64_t by_slots_one(double end) { return by_slots(end, 0); }
static uint64_t by_slots_many(double end) { return by_slots(end, 1); }

int main(int count, char **words) {
    static const struct { const char *name; uint64_t (*forward)(double); } ways[] = {
        { "recvmsg + writev", by_recvmsg },         { "recvmmsg + sendmmsg", by_recvmmsg },
        { "V3 blocks + sendmmsg", by_blocks },      { "V2 slots + writev", by_slots_one },
        { "V2 slots + sendmmsg", by_slots_many },
        { "V2 small slots", by_small },             { "V2 small slots, 8 MiB", by_small_short },
        { "V2 small slots, no vnet", by_small_plain },
    };
    if (count != 3 || (frame_bytes = atoi(words[1])) < 60 || frame_bytes > 1514) {
        fprintf(stderr, "packet-rings BYTES ROUNDS, 60 to 1514 bytes\n");
        return 2;
    }
    must(!system("for pair in a0:in0 b0:out0; do ip link add ${pair%:*} type veth peer name ${pair#*:} || exit 1; done\n"
                 "for name in a0 in0 b0 out0; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; ip link set $name up; done"),
         "ip (in a network namespace of its own? unshare -n)");
    for (int round = 0; round < atoi(words[2]); round++) {
        for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
            pthread_t sender;
            stop = 0, sent = 0;
            pthread_create(&sender, NULL, send_frames, NULL);
            double begin = now(), before = cpu();
            uint64_t frames = ways[way].forward(begin + SECONDS);
            double used = cpu() - before, seconds = now() - begin;
            stop = 1;
            pthread_join(sender, NULL);
            printf("%s,%d,%.0f,%.0f,%.0f\n", ways[way].name, frame_bytes, frames / seconds, used / frames, sender_cpu / sent);
            fflush(stdout);
        }
    }
    return 0;
}
