/* Ask the fork server of `fork_server.py` for a process, pass it our descriptors and signals, and end as it ends.

   The server reads all else about us from /proc. It answers "script" where its fork would differ from a new process: then
   we become one. This runs thousands of times, and a start of Python takes 15 ms. */

#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST = 253 }; /* descriptors in a message */

static volatile pid_t process;
static volatile sig_atomic_t early[NSIG];

static void forward(int number) {
    if (process)
        kill(process, number); /* it may have ended, which we are about to be told */
    else
        early[number]++;
}

static int is_kept(int number) {
    return number == SIGKILL || number == SIGSTOP || number == SIGCHLD || number == SIGTSTP || number == SIGCONT;
}

/* Commands that need little of what others import: a fork of a small process, and the end of its forks, takes half the
   time. They start and end daemons a thousand times. Those of a URL import clients, which takes ten times as long, and
   tests of tables say that they need the large one. */
static const char *socket_of(int count, char **arguments) {
    static const char *const small[] = {"doctor", "mount", "reload", "status", "umount"};
    if (getenv("COMMAND_IS_LARGE")) return "large";
    for (int each = 2; each < count; each++)
        if (strstr(arguments[each], "://")) return "large";
    for (size_t each = 0; count > 1 && each < sizeof small / sizeof *small; each++)
        if (!strcmp(arguments[1], small[each])) return "small";
    return "large";
}

/* A path beside this program, whatever it was called as. */
static const char *beside(const char *name) {
    static char path[PATH_MAX + 16];
    ssize_t size = readlink("/proc/self/exe", path, PATH_MAX);
    if (size < 0) err(1, "/proc/self/exe");
    path[size] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

static void ask(int server, int arguments, const char *name) {
    uint32_t told[1 + MOST] = {arguments};
    int open[MOST], count = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (!directory) err(1, "/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory));) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number == server || number == dirfd(directory)) continue;
        if (count == MOST) errx(1, "more than %d files are open", MOST);
        open[count] = number;
        told[++count] = number;
    }
    closedir(directory);
    char control[CMSG_SPACE(sizeof open)] = {0};
    struct iovec data = {told, (1 + count) * sizeof *told};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (count) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof *open);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        *rights = (struct cmsghdr){CMSG_LEN(count * sizeof *open), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(rights), open, count * sizeof *open);
    }
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    const char *path = beside(name);
    if (strlen(path) >= sizeof place.sun_path) errx(1, "%s is too long for a socket", path);
    strcpy(place.sun_path, path);
    if (connect(server, (struct sockaddr *)&place, sizeof place) || sendmsg(server, &message, 0) < 0) err(1, "%s", path);
}

static const char *answer(int server) {
    static char told[64];
    ssize_t size = recv(server, told, sizeof told - 1, 0);
    if (size <= 0) errx(1, "the fork server has ended");
    told[size] = 0;
    return told;
}

int main(int count, char **arguments) {
    struct sigaction before[NSIG], forwarded = {.sa_handler = forward, .sa_flags = SA_RESTART};
    for (int number = 1; number < NSIG; number++)
        if (!is_kept(number) && !sigaction(number, NULL, &before[number]) && before[number].sa_handler != SIG_IGN)
            sigaction(number, &forwarded, NULL);
    /* As in each process of Python: the server compares what we ignore. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (server < 0) err(1, "socket");
    ask(server, count, socket_of(count, arguments));
    const char *told = answer(server);
    if (!strcmp(told, "script")) {
        for (int number = 1; number < NSIG; number++)
            if (!is_kept(number)) sigaction(number, &before[number], NULL);
        char script[PATH_MAX];
        ssize_t size = readlink(beside("script"), script, sizeof script - 1);
        if (size < 0) err(1, "%s", beside("script"));
        script[size] = 0;
        arguments[0] = script;
        execv(script, arguments);
        err(1, "%s", script);
    }
    process = atoi(told);
    for (int number = 1; number < NSIG; number++)
        if (early[number]) forward(number);
    int status = atoi(answer(server));
    if (status >= 0) _exit(status);
    if (status != -SIGKILL) signal(-status, SIG_DFL);
    kill(getpid(), -status);
    pause();
}
