/* Under LD_PRELOAD: appends to $RECORD_LOG what this process does to files below $RECORD_ROOT, in order.

   An event is a header (struct event), two names and the data that was written. A sync is recorded after it returned, a
   write before it begins. The log up to a power cut therefore holds every write that may have begun, and only syncs that
   are complete. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct event {
    uint64_t kind, inode, offset, size, name, other;
};

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;

static void note(char kind, uint64_t inode, uint64_t offset, const void *data, uint64_t size, const char *name,
                 const char *other) {
    struct event e = {(uint64_t)kind, inode, offset, size, strlen(name), strlen(other)};
    struct iovec parts[] = {
        {&e, sizeof e}, {(void *)name, e.name}, {(void *)other, e.other}, {(void *)data, (size_t)size}};
    if (log_fd < 0) log_fd = REAL(open64)(getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (REAL(writev)(log_fd, parts, 4) < 0) abort();
}

/* Returns the absolute name of `path`, "" if it is not below the root. */
static const char *name_of(int folder, const char *path, char *buffer) {
    const char *root = getenv("RECORD_ROOT");
    char from[PATH_MAX] = "";
    if (!root) return "";
    if (path[0] == '/')
        snprintf(buffer, PATH_MAX, "%s", path);
    else {
        char link[64];
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        if (readlink(link, from, sizeof from - 1) < 0) return "";
        snprintf(buffer, PATH_MAX, "%.2000s/%.2000s", from, path);
    }
    return strncmp(buffer, root, strlen(root)) ? "" : buffer;
}

/* Returns whether `fd` is open on a file or folder below the root. */
static int tracked(int fd, struct stat *status, char *name) {
    const char *root = getenv("RECORD_ROOT");
    char link[64];
    ssize_t length;
    if (!root || fd == log_fd || fstat(fd, status) || !(S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, PATH_MAX - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return !strncmp(name, root, strlen(root));
}

static int opened(int fd, int folder, const char *path, int flags) {
    char name[PATH_MAX];
    struct stat status;
    if (fd >= 0 && flags & (O_CREAT | O_TRUNC) && *name_of(folder, path, name) && !fstat(fd, &status)) {
        pthread_mutex_lock(&lock);
        if (flags & O_CREAT) note('C', status.st_ino, 0, "", 0, name, "");
        if (flags & O_TRUNC) note('T', status.st_ino, 0, "", 0, name, "");
        pthread_mutex_unlock(&lock);
    }
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opened(REAL(open)(path, flags, mode), AT_FDCWD, path, flags);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opened(REAL(open64)(path, flags, mode), AT_FDCWD, path, flags);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return opened(REAL(openat)(folder, path, flags, mode), folder, path, flags);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return opened(REAL(openat64)(folder, path, flags, mode), folder, path, flags);
}

/* 'W' is a write that may get lost until the next sync. 'D' is for a file open for synced writes: the last writes, whose
   number is in the offset, are on the disk. */
static ssize_t written(int fd, const struct iovec *parts, int count, off_t offset, ssize_t (*write)(void *), void *call) {
    char name[PATH_MAX];
    struct stat status;
    ssize_t done;
    if (!tracked(fd, &status, name)) return write(call);
    int flags = fcntl(fd, F_GETFL), durable = flags & (O_DSYNC | O_SYNC);
    if (offset < 0) offset = flags & O_APPEND ? status.st_size : lseek(fd, 0, SEEK_CUR);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        note('W', status.st_ino, offset, parts[i].iov_base, parts[i].iov_len, name, "");
        offset += parts[i].iov_len;
    }
    done = write(call);
    if (done >= 0 && durable) note('D', status.st_ino, count, "", 0, name, "");
    pthread_mutex_unlock(&lock);
    return done;
}

struct call {
    int fd;
    const void *data;
    size_t size;
    off_t offset;
};
#define CALL struct call *c = call
static ssize_t do_write(void *call) { CALL; return REAL(write)(c->fd, c->data, c->size); }
static ssize_t do_pwrite(void *call) { CALL; return REAL(pwrite)(c->fd, c->data, c->size, c->offset); }
static ssize_t do_writev(void *call) { CALL; return REAL(writev)(c->fd, c->data, (int)c->size); }
static ssize_t do_pwritev(void *call) { CALL; return REAL(pwritev)(c->fd, c->data, (int)c->size, c->offset); }

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    return written(fd, &part, 1, -1, do_write, &(struct call){fd, data, size, 0});
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return written(fd, &part, 1, offset, do_pwrite, &(struct call){fd, data, size, offset});
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return written(fd, parts, count, -1, do_writev, &(struct call){fd, parts, count, 0});
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return written(fd, parts, count, offset, do_pwritev, &(struct call){fd, parts, count, offset});
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev(fd, parts, count, offset);
}

static int on_file(char kind, int fd, off_t offset, int result) {
    char name[PATH_MAX];
    struct stat status;
    if (result == 0 && tracked(fd, &status, name)) {
        pthread_mutex_lock(&lock);
        note(S_ISDIR(status.st_mode) ? 'F' : kind, status.st_ino, offset, "", 0, name, "");
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int fsync(int fd) { return on_file('S', fd, 0, REAL(fsync)(fd)); }
int fdatasync(int fd) { return on_file('S', fd, 0, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { return on_file('T', fd, size, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off_t size) { return on_file('T', fd, size, REAL(ftruncate)(fd, size)); }

static int on_names(char kind, int folder, const char *path, int other_folder, const char *other, int result) {
    char name[PATH_MAX], second[PATH_MAX];
    if (result == 0 && *name_of(folder, path, name)) {
        pthread_mutex_lock(&lock);
        note(kind, 0, 0, "", 0, name, other ? name_of(other_folder, other, second) : "");
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int rename(const char *a, const char *b) { return on_names('R', AT_FDCWD, a, AT_FDCWD, b, REAL(rename)(a, b)); }
int renameat(int x, const char *a, int y, const char *b) { return on_names('R', x, a, y, b, REAL(renameat)(x, a, y, b)); }
int link(const char *a, const char *b) { return on_names('L', AT_FDCWD, a, AT_FDCWD, b, REAL(link)(a, b)); }
int linkat(int x, const char *a, int y, const char *b, int flags) {
    return on_names('L', x, a, y, b, REAL(linkat)(x, a, y, b, flags));
}
int unlink(const char *a) { return on_names('U', AT_FDCWD, a, 0, NULL, REAL(unlink)(a)); }
int unlinkat(int x, const char *a, int flags) { return on_names('U', x, a, 0, NULL, REAL(unlinkat)(x, a, flags)); }
