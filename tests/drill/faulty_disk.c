// Stands between a program and the C library (LD_PRELOAD). What the file that $DISK_FAULT names
// begins with says what fails: "f", each sync, with EIO; "s", a sync takes two seconds; anything else,
// or no file, nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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
