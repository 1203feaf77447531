// The least that a file system does for a file: raw /dev/fuse, no libfuse, answers that are arithmetic and one pread.
//
//     null_daemon MOUNTPOINT DATA COUNT SIZE FIRST STRIDE SPIN_US
//
// serves f000000 ... f(COUNT-1), each SIZE bytes of DATA from FIRST + number * STRIDE on. It polls for SPIN_US microseconds
// before it sleeps; with 0 it always sleeps. It mounts by mount(2), as root.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROOT = FUSE_ROOT_ID, FIRST_INODE = 1000, TIMEOUT = 3600, BUFFER = 2 << 20 };

static int fuse, data;
static unsigned long count, size, first, stride;

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void reply(const struct fuse_in_header *request, int error, const void *body, size_t length)
{
    struct fuse_out_header header = {sizeof header + length, error, request->unique};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)body, length}};
    if (writev(fuse, parts, length ? 2 : 1) < 0 && errno != ENOENT)
        perror("null_daemon: reply");
}

static struct fuse_attr attributes(unsigned long inode)
{
    struct fuse_attr attr = {.ino = inode, .nlink = 1, .mode = S_IFREG | 0444, .size = size};
    if (inode == ROOT)
        attr = (struct fuse_attr){.ino = inode, .nlink = 2, .mode = S_IFDIR | 0755};
    return attr;
}

static void answer(const struct fuse_in_header *request)
{
    static char content[BUFFER];
    const void *body = request + 1;
    switch (request->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *in = body;
        struct fuse_init_out out = {
            .major = 7, .minor = 31, .max_readahead = in->max_readahead, .max_write = 1 << 20, .max_pages = 256,
            .flags = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES, .max_background = 12,
            .congestion_threshold = 9, .time_gran = 1};
        reply(request, 0, &out, sizeof out);
        return;
    }
    case FUSE_LOOKUP: {
        const char *name = body;
        unsigned long number = name[0] == 'f' ? strtoul(name + 1, NULL, 10) : count;
        struct fuse_entry_out out = {.nodeid = FIRST_INODE + number, .entry_valid = TIMEOUT, .attr_valid = TIMEOUT};
        out.attr = attributes(out.nodeid);
        reply(request, number < count ? 0 : -ENOENT, &out, number < count ? sizeof out : 0);
        return;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = TIMEOUT, .attr = attributes(request->nodeid)};
        reply(request, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.fh = request->nodeid, .open_flags = FOPEN_KEEP_CACHE};
        reply(request, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        const struct fuse_read_in *in = body;
        size_t left = in->offset < size ? size - in->offset : 0, length = in->size < left ? in->size : left;
        ssize_t got = pread(data, content, length, first + (request->nodeid - FIRST_INODE) * stride + in->offset);
        reply(request, got < 0 ? -EIO : 0, content, got < 0 ? 0 : got);
        return;
    }
    case FUSE_RELEASE:
        reply(request, 0, NULL, 0);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return; // these have no reply
    default:
        reply(request, -ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    static char buffer[BUFFER] __attribute__((aligned(4096)));
    if (argc != 8)
        return fprintf(stderr, "usage: null_daemon MOUNTPOINT DATA COUNT SIZE FIRST STRIDE SPIN_US\n"), 2;
    count = atol(argv[3]), size = atol(argv[4]), first = atol(argv[5]), stride = atol(argv[6]);
    long long spin = atol(argv[7]) * 1000LL;
    data = open(argv[2], O_RDONLY);
    fuse = open("/dev/fuse", O_RDWR | (spin ? O_NONBLOCK : 0));
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
    if (data < 0 || fuse < 0 || mount("null", argv[1], "fuse.null", MS_RDONLY, options))
        return perror("null_daemon"), 1;
    for (long long until = now() + spin;;) {
        if (read(fuse, buffer, sizeof buffer) > 0) {
            answer((struct fuse_in_header *)buffer);
            until = now() + spin;
        } else if (errno == ENODEV) {
            return 0; // it is unmounted
        } else if (errno == EAGAIN) {
            struct pollfd readable = {fuse, POLLIN, 0};
            if (now() > until)
                poll(&readable, 1, -1);
        } else if (errno != EINTR && errno != ENOENT) {
            return perror("null_daemon: read"), 1;
        }
    }
}
