/* Kill the process before its n-th call that changes a file system or takes a lock, or let that call go wrong.
 *
 * Preloaded into a process. Each function arms it, for the n-th of the calls below from then on, or the n-th to the last:
 *   crash_at   the call is not made, and the process gets SIGKILL instead, as if it had been killed between two calls
 *   fail_at    it is not made, and returns -1 with an errno
 *   short_at   of what a write is to write, half is written, and it says so
 *   lie_at     of what a write is to write, half is written, and it says that all was
 *   lose_at    it is made, and says that it was not: a name was there, or was not there, before. So NFS does where a
 *              reply is lost and the request is sent again
 * crash_calls() says how many were made. strace counts the same calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum how { WELL, KILLED, FAILING, SHORT, LYING, LOST };

static long limit = 0, last_wrong = 0, calls = 0;
static int error = 0;
static enum how wrong = WELL;

static void arm(enum how how, long n, long last) { wrong = how; limit = n; last_wrong = last; calls = 0; }

void crash_at(long n) { arm(KILLED, n, LONG_MAX); }
void fail_at(long n, long last, int with) { arm(FAILING, n, last); error = with; }
void short_at(long n, long last) { arm(SHORT, n, last); }
void lie_at(long n, long last) { arm(LYING, n, last); }
void lose_at(long n, long last) { arm(LOST, n, last); }
long crash_calls(void) { return calls; }

/* Count a call; return how it goes. */
static enum how counted(void) {
    if (!limit || ++calls < limit || calls > last_wrong) return WELL;
    if (wrong != KILLED) return wrong;
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int says(int with) { errno = with; return -1; }

static int is_file(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, parameters, arguments) \
    type name parameters { return counted() == FAILING ? says(error) : NEXT(name) arguments; }

/* A call on a name: again is what it says when it is sent a second time. */
#define NAME(type, name, again, parameters, arguments) \
    type name parameters { \
        enum how how = counted(); \
        if (how == FAILING) return says(error); \
        type done = NEXT(name) arguments; \
        return how == LOST && done == 0 ? says(again) : done; \
    }

#define WRITE(name, parameters, arguments, half) \
    ssize_t name parameters { \
        enum how how = counted(); \
        if (how == FAILING) return says(error); \
        if ((how != SHORT && how != LYING) || size < 2 || !is_file(fd)) return NEXT(name) arguments; \
        ssize_t done = NEXT(name) half; \
        return how == LYING && done >= 0 ? (ssize_t)size : done; \
    }

WRITE(write, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2))
WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), (fd, data, size / 2, at))
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), (fd, data, size / 2, at))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size))
WRAP(int, truncate, (const char *path, off_t size), (path, size))
NAME(int, rename, ENOENT, (const char *from, const char *to), (from, to))
NAME(int, renameat, ENOENT, (int a, const char *from, int b, const char *to), (a, from, b, to))
NAME(int, link, EEXIST, (const char *from, const char *to), (from, to))
NAME(int, linkat, EEXIST, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
NAME(int, symlink, EEXIST, (const char *from, const char *to), (from, to))
NAME(int, unlink, ENOENT, (const char *path), (path))
NAME(int, unlinkat, ENOENT, (int fd, const char *path, int flags), (fd, path, flags))
NAME(int, rmdir, ENOENT, (const char *path), (path))
NAME(int, mkdir, EEXIST, (const char *path, mode_t mode), (path, mode))
NAME(int, mkdirat, EEXIST, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(int, flock, (int fd, int how), (fd, how))
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
WRAP(int, utimensat, (int fd, const char *path, const struct timespec times[2], int flags), (fd, path, times, flags))

#define OPEN(name, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        if (!(flags & (O_CREAT | O_TRUNC))) return NEXT(name) arguments; \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
        enum how how = counted(); \
        if (how == FAILING) return says(error); \
        int made = NEXT(name) arguments; \
        if (how != LOST || made < 0 || (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL)) return made; \
        close(made); \
        return says(EEXIST); \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))
OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))

#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *with = va_arg(rest, void *); \
        va_end(rest); \
        if ((command == F_SETLK || command == F_SETLKW) && counted() == FAILING) return says(error); \
        return NEXT(name)(fd, command, with); \
    }

FCNTL(fcntl)
FCNTL(fcntl64)
