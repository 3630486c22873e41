// Stands between a program and the C library (LD_PRELOAD). What the file that $DISK_FAULT names
// begins with says what fails: "f", each sync, with EIO; "s", a sync takes two seconds; "r", each
// read of the state, with EIO; "o", the next of these reads, and the file goes; anything else, or no
// file, nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char fault(void) {
    char found = 0;
    const char *path = getenv("DISK_FAULT");
    int saying = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (saying < 0) return 0;
    if (read(saying, &found, 1) != 1) found = 0;
    close(saying);
    return found;
}

static int sync_by(const char *name, int fd) {
    char found = fault();
    if (found == 'f') {
        errno = EIO;
        return -1;
    }
    if (found == 's') usleep(2000 * 1000);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return sync_by("fsync", fd); }
int fdatasync(int fd) { return sync_by("fdatasync", fd); }

static int is_state(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/state.redb") != NULL;
}

ssize_t pread64(int fd, void *into, size_t count, off64_t at) {
    char found = fault();
    if ((found == 'r' || found == 'o') && is_state(fd)) {
        if (found == 'o') unlink(getenv("DISK_FAULT"));
        errno = EIO;
        return -1;
    }
    ssize_t (*real)(int, void *, size_t, off64_t) =
        (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    return real(fd, into, count, at);
}
