/* Kill the process before its n-th call that changes a file system, or let that call fail.
 *
 * Preloaded into a process. crash_at(n) arms it: the n-th of the calls below from then on is not made, and the process
 * gets SIGKILL instead, as if it had been killed between two system calls. fail_at(n, last, error) lets the n-th to the
 * last call return -1 with that errno instead. crash_calls() says how many were made. strace counts the same calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long limit = 0, last_failing = 0, calls = 0;
static int error = 0;

void crash_at(long n) { limit = n; calls = 0; error = 0; }
void fail_at(long n, long last, int with) { limit = n; last_failing = last; calls = 0; error = with; }
long crash_calls(void) { return calls; }

/* Count a call; return whether it must fail. */
static int fails(void) {
    if (!limit || ++calls < limit) return 0;
    if (error) {
        errno = error;
        return calls <= last_failing;
    }
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, parameters, arguments) \
    type name parameters { return fails() ? -1 : NEXT(name) arguments; }

WRAP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size))
WRAP(int, truncate, (const char *path, off_t size), (path, size))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, link, (const char *from, const char *to), (from, to))
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRAP(int, symlink, (const char *from, const char *to), (from, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, rmdir, (const char *path), (path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
WRAP(int, utimensat, (int fd, const char *path, const struct timespec times[2], int flags), (fd, path, times, flags))

#define OPEN(name, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TRUNC)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
            if (fails()) return -1; \
        } \
        return NEXT(name) arguments; \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))
OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))
