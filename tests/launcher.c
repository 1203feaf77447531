/* Ask the fork server of `fork_server.py` for a process, pass it our descriptors and signals, and end as it ends.

   The server reads all else about us from /proc. It answers "installed" where its fork would differ from a new process:
   then we become one. This runs thousands of times, and a start of Python takes 15 ms. */

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

static char own[PATH_MAX]; /* the path of this program, and its name, whatever it was called as */
static const char *program;
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
    if (!strcmp(program, "python")) return "programs";
    if (getenv("COMMAND_IS_LARGE")) return "large";
    for (int each = 2; each < count; each++)
        if (strstr(arguments[each], "://")) return "large";
    for (size_t each = 0; count > 1 && each < sizeof small / sizeof *small; each++)
        if (!strcmp(arguments[1], small[each])) return "small";
    return "large";
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
    size_t size = snprintf(place.sun_path, sizeof place.sun_path, "%.*s%s", (int)(program - own), own, name);
    if (size >= sizeof place.sun_path) errx(1, "%s is too long for the path of a socket", own);
    if (connect(server, (struct sockaddr *)&place, sizeof place) || sendmsg(server, &message, 0) < 0)
        err(1, "%s", place.sun_path);
}

static const char *answer(int server) {
    static char told[64];
    ssize_t size = recv(server, told, sizeof told - 1, 0);
    if (size <= 0) errx(1, "the fork server has ended");
    told[size] = 0;
    return told;
}

int main(int count, char **arguments) {
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) err(1, "/proc/self/exe");
    program = strrchr(own, '/') + 1;
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
    if (!strcmp(told, "installed")) {
        for (int number = 1; number < NSIG; number++)
            if (!is_kept(number)) sigaction(number, &before[number], NULL);
        char link[sizeof own + sizeof ".installed"], installed[PATH_MAX] = {0};
        sprintf(link, "%s.installed", own);
        if (readlink(link, installed, sizeof installed - 1) < 0) err(1, "%s", link);
        arguments[0] = installed;
        execv(installed, arguments);
        err(1, "%s", installed);
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
