// Stands between a program and the C library (LD_PRELOAD). What the file that $SYNC_FAULT names
// begins with says what becomes of a sync: "f", it fails with EIO; "s", it takes two seconds;
// anything else, or no file, and it is the real one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_by(const char *name, int fd) {
    char fault = 0;
    const char *path = getenv("SYNC_FAULT");
    int saying = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (saying >= 0) {
        if (read(saying, &fault, 1) != 1) fault = 0;
        close(saying);
    }
    if (fault == 'f') {
        errno = EIO;
        return -1;
    }
    if (fault == 's') usleep(2000 * 1000);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return sync_by("fsync", fd); }
int fdatasync(int fd) { return sync_by("fdatasync", fd); }
