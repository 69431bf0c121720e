/* Call a function before the n-th call that opens, looks at, reads or maps a file, or closes one.
 *
 * Preloaded into a process. watch_at(n, function) arms it, for the n-th of the calls below from then on; 0 and NULL
 * disarm it. What the function itself calls does not count. watched_calls() says how many were made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long limit = 0, calls = 0;
static int inside = 0;
static void (*before)(void) = NULL;

void watch_at(long n, void (*function)(void)) { limit = n; before = function; calls = 0; }
long watched_calls(void) { return calls; }

static void counted(void) {
    if (!before || inside || ++calls != limit) return;
    inside = 1;
    before();
    inside = 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, parameters, arguments) \
    type name parameters { counted(); return NEXT(name) arguments; }

#define OPEN(name, parameters, arguments) \
    int name parameters { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        counted(); \
        return NEXT(name) arguments; \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))
OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))
WRAP(int, close, (int fd), (fd))
WRAP(int, stat64, (const char *path, struct stat64 *found), (path, found))
WRAP(int, lstat64, (const char *path, struct stat64 *found), (path, found))
WRAP(int, fstat64, (int fd, struct stat64 *found), (fd, found))
WRAP(int, fstatat64, (int fd, const char *path, struct stat64 *found, int flags), (fd, path, found, flags))
WRAP(int, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *found), (fd, path, flags, mask, found))
WRAP(int, access, (const char *path, int mode), (path, mode))
WRAP(int, faccessat, (int fd, const char *path, int mode, int flags), (fd, path, mode, flags))
WRAP(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size))
WRAP(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size))
WRAP(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
WRAP(ssize_t, preadv64, (int fd, const struct iovec *to, int count, off64_t at), (fd, to, count, at))
WRAP(ssize_t, preadv64v2, (int fd, const struct iovec *to, int count, off64_t at, int flags), (fd, to, count, at, flags))
WRAP(off64_t, lseek64, (int fd, off64_t at, int from), (fd, at, from))
WRAP(void *, mmap64, (void *at, size_t size, int how, int flags, int fd, off64_t from), (at, size, how, flags, fd, from))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
WRAP(int, utimensat, (int fd, const char *path, const struct timespec times[2], int flags), (fd, path, times, flags))
