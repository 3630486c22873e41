// Stands between a program and the C library (LD_PRELOAD). What the file that $DISK_FAULT names
// begins with says what fails: "f", each sync, with EIO; "s", a sync takes two seconds; "r", each
// read of a file, with EIO; "o", the next of these reads, and the file that says so goes; "h", the
// next of them takes a minute, and it goes, too; anything else, or no file, nothing. Behind a space
// stands a part of the path of the files whose reads are meant.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t real_read(int fd, void *into, size_t count) {
    ssize_t (*real)(int, void *, size_t) =
        (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    return real(fd, into, count);
}

// The first letter, and behind the space the rest.
static char fault(char part[256]) {
    char said[256];
    const char *path = getenv("DISK_FAULT");
    int saying = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    part[0] = 0;
    if (saying < 0) return 0;
    ssize_t length = real_read(saying, said, sizeof said - 1);
    close(saying);
    if (length < 1) return 0;
    said[length] = 0;
    char *space = strchr(said, ' ');
    if (space) strcpy(part, space + 1);
    return said[0];
}

static int sync_by(const char *name, int fd) {
    char part[256], found = fault(part);
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

static int is_meant(int fd, const char *part) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, part) != NULL;
}

static int read_fails(int fd) {
    char part[256], found = fault(part);
    if ((found != 'r' && found != 'o' && found != 'h') || !is_meant(fd, part)) return 0;
    if (found != 'r') unlink(getenv("DISK_FAULT"));
    if (found == 'h') {
        sleep(60);
        return 0;
    }
    errno = EIO;
    return 1;
}

ssize_t read(int fd, void *into, size_t count) {
    return read_fails(fd) ? -1 : real_read(fd, into, count);
}

ssize_t pread64(int fd, void *into, size_t count, off64_t at) {
    if (read_fails(fd)) return -1;
    ssize_t (*real)(int, void *, size_t, off64_t) =
        (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    return real(fd, into, count, at);
}
