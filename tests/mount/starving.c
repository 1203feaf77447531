/* A system that is short of everything: with LD_PRELOAD, some calls fail as they do when there is no room.
 *
 * $STARVING names a file whose first four bytes say how many calls in a thousand fail, while a mount goes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static volatile uint32_t *rate;

__attribute__((constructor)) static void map_rate(void) {
    const char *path = getenv("STARVING");
    int file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    rate = mapped == MAP_FAILED ? NULL : mapped;
    syscall(SYS_close, file);
}

static int fails(void) {
    static __thread uint64_t state;
    if (!rate || !*rate) return 0;
    if (!state) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (uint64_t)now.tv_nsec << 20 ^ (uint64_t)syscall(SYS_gettid);
    }
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % 1000 < *rate;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(number) do { if (fails()) { errno = number; return -1; } } while (0)

pid_t fork(void) { FAIL(EAGAIN); return NEXT(fork)(); }
int memfd_create(const char *name, unsigned flags) { FAIL(EMFILE); return syscall(SYS_memfd_create, name, flags); }
int eventfd(unsigned count, int flags) { FAIL(EMFILE); return syscall(SYS_eventfd2, count, flags); }
int socketpair(int domain, int type, int protocol, int ends[2]) {
    FAIL(EMFILE);
    return syscall(SYS_socketpair, domain, type, protocol, ends);
}
int socket(int domain, int type, int protocol) { FAIL(EMFILE); return syscall(SYS_socket, domain, type, protocol); }
int pipe2(int ends[2], int flags) { FAIL(EMFILE); return syscall(SYS_pipe2, ends, flags); }
int pipe(int ends[2]) { return pipe2(ends, 0); }
int epoll_create1(int flags) { FAIL(EMFILE); return syscall(SYS_epoll_create1, flags); }
int dup(int file) { FAIL(EMFILE); return syscall(SYS_dup, file); }

int openat(int at, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    FAIL(EMFILE);
    return syscall(SYS_openat, at, path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    FAIL(EMFILE);
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int at, const char *path, int flags, ...) __attribute__((alias("openat")));

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    if ((file >= 0 || size > 1 << 21) && fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
    return fails() ? EAGAIN : NEXT(pthread_create)(thread, how, run, argument);
}
